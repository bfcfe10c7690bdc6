"""RMIA: does the target favour this record more than it favours other records?

References:
    Zarifzadeh, Liu, Shokri, Low-Cost High-Power Membership Inference Attacks, 2024,
    Eq. 2-4 and 10, Algorithm 1.
"""

from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from pydantic import Field

from covey.components.section import Share
from covey.membership.attack_base import Attack, Needs, Scores
from covey.membership.signals import Signals, check_references, of_label

__all__ = [
    "Rmia",
    "RmiaOffline",
    "likelihood_ratio_offline",
    "likelihood_ratio_online",
    "rmia",
]


AtLeastOne = Annotated[float, Field(ge=1)]


class Rmia(Attack):
    """The share of the audited records that a record beats.

    The audited records stand in for the population: each is compared with all.

    Attributes:
        gamma: by how much a record must be ahead of another.
    """

    gamma: AtLeastOne = 1.0

    def __call__(self, signals: Signals) -> Scores:
        """Return the share, in [0, 1]."""
        ratios = likelihood_ratio_online(*_confidences(signals), signals.inside)
        return rmia(ratios, population=ratios, gamma=self.gamma)


class RmiaOffline(Attack):
    """The same, where only models without the record are known.

    Attributes:
        gamma: by how much a record must be ahead of another.
        a: how little models with a record would differ from those without.
    """

    needs: ClassVar[Needs] = "outside"
    gamma: AtLeastOne = 1.0
    a: Share = 0.3

    def __call__(self, signals: Signals) -> Scores:
        """Return the share, in [0, 1]."""
        seen = _confidences(signals)
        ratios = likelihood_ratio_offline(*seen, signals.inside, self.a)
        return rmia(ratios, population=ratios, gamma=self.gamma)


def _confidences(seen: Signals) -> tuple[ndarray, ndarray]:
    return of_label(seen.target, seen.labels), of_label(seen.references, seen.labels)


def rmia(
    ratios: Float[ndarray, " records"],
    population: Float[ndarray, " others"],
    gamma: float = 1.0,
) -> Float[ndarray, " records"]:
    """Return the share of the population that a record beats, in [0, 1].

    P_z[ ratio(x) / ratio(z) >= gamma ]

    Args:
        ratios: log ratio(x) of the audited records, from one of the functions below.
        population: log ratio(z) of records from the same distribution.
        gamma: by how much x must be ahead of z; at least 1.
    """
    behind = np.searchsorted(np.sort(population), ratios - np.log(gamma), side="right")
    return behind / len(population)


def likelihood_ratio_online(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
) -> Float[ndarray, " records"]:
    """Return log ratio(x) = log p(x | theta) - log p(x), with IN and OUT models.

    p(x) = (mean of p(x | theta') over IN + mean over OUT) / 2

    Args:
        target: log p(x | theta), the log-probability of the label.
        references: log p(x | theta') under every reference.
        inside: which reference was trained on which record.
    """
    check_references(inside)
    sides = [_log_mean(references, chosen) for chosen in (inside, ~inside)]
    return target - (np.logaddexp(*sides) - np.log(2))


def likelihood_ratio_offline(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
    a: float = 0.3,
) -> Float[ndarray, " records"]:
    """Return log ratio(x) where only OUT models are known.

    p(x) = ((1 + a) p_out(x) + 1 - a) / 2, p_out the mean over OUT models

    Arguments as for `likelihood_ratio_online`; `a` in [0, 1] says how little IN models
    would differ from OUT models: they overfit more, the smaller it should be.
    """
    check_references(inside, sides=("outside",))
    p_out = np.exp(_log_mean(references, ~inside))
    return target - np.log(((1 + a) * p_out + 1 - a) / 2)


def _log_mean(
    values: Float[ndarray, "records models"], chosen: Bool[ndarray, "records models"]
) -> Float[ndarray, " records"]:
    from scipy.special import logsumexp

    return logsumexp(values, b=chosen, axis=1) - np.log(chosen.sum(axis=1))
