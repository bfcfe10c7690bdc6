"""LiRA: is the target's confidence what models show that learnt the record, or not?

References:
    Carlini, Chien, Nasr, Song, Terzis, Tramèr, Membership Inference Attacks From First
    Principles, 2022, Algorithm 1 and sections IV-C, V.
"""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from covey.membership.attack_base import Attack, Needs, Scores
from covey.membership.signals import Signals, check_references, logit

__all__ = ["Lira", "LiraOffline", "Variance", "lira_offline", "lira_online"]

Variance = Literal["global", "per-example"]
"""One variance for all records, for few references (below 64), or each record's own."""

MIN_VARIANCE = 1e-6


class Lira(Attack):
    """The likelihood ratio of models with and without a record.

    Attributes:
        variance: one for all records, or each record's own.
    """

    variance: Variance = "global"

    def __call__(self, signals: Signals) -> Scores:
        """Return the log-ratio, of logit-scaled confidences."""
        return lira_online(*_logits(signals), signals.inside, self.variance)


class LiraOffline(Attack):
    """The same, against models without the record alone.

    Attributes:
        variance: one for all records, or each record's own.
    """

    needs: ClassVar[Needs] = "outside"
    variance: Variance = "global"

    def __call__(self, signals: Signals) -> Scores:
        """Return how unlikely the confidence would be."""
        return lira_offline(*_logits(signals), signals.inside, self.variance)


def _logits(seen: Signals) -> tuple[ndarray, ndarray]:
    return logit(seen.target, seen.labels), logit(seen.references, seen.labels)


def lira_online(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
    variance: Variance = "global",
) -> Float[ndarray, " records"]:
    """Return log N(phi; mu_in, sigma_in^2) - log N(phi; mu_out, sigma_out^2).

    Args:
        target: phi, the logit-scaled confidence under the attacked model.
        references: the same under models with (`inside`) and without the record.
        inside: which reference was trained on which record.
        variance: whether the sigmas are shared by all records.
    """
    from scipy.stats import norm

    check_references(inside, least=_min_references(variance))
    in_, out = (_normal(references, side, variance) for side in (inside, ~inside))
    return norm.logpdf(target, *in_) - norm.logpdf(target, *out)


def lira_offline(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
    variance: Variance = "global",
) -> Float[ndarray, " records"]:
    """Return -log P[N(mu_out, sigma_out^2) > phi]: one-sided, against OUT models alone.

    Arguments as for `lira_online`; IN columns are not looked at. The logarithm keeps
    records apart whose probability rounds to 0.
    """
    from scipy.stats import norm

    check_references(inside, _min_references(variance), ("outside",))
    return -norm.logsf(target, *_normal(references, ~inside, variance))


def _min_references(variance: Variance) -> int:
    return 1 if variance == "global" else 2


def _normal(
    values: Float[ndarray, "records models"],
    chosen: Bool[ndarray, "records models"],
    variance: Variance,
) -> tuple[ndarray, ndarray]:
    """Return mu per record, and sigma: the deviation of the chosen columns."""
    mu = values.mean(axis=1, where=chosen)
    if variance == "global":
        sigma = np.full(len(mu), values[chosen].std())
    else:
        sigma = values.std(axis=1, where=chosen)
    return mu, np.maximum(sigma, MIN_VARIANCE)
