"""How exposed every record is, by models that learnt it and models that did not.

The auditor's view, in a simulation. Of whose records they are, only counts are told.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from covey.membership.loss_spreads import top_share
from covey.membership.signals import Signals, check_references, logit

__all__ = ["ExposedCounts", "exposed_counts", "record_exposures"]

SHARE = 0.01

PAIR = 2
"""References come in pairs that learnt opposite halves of the records."""


@dataclass(frozen=True, slots=True)
class ExposedCounts:
    """Where the most exposed 1% of a cluster's members are; no record is named.

    Half of the references say which these are, and the others how exposed they are: the
    highest of many figures by few references are the highest by chance as well.

    Attributes:
        records: how many these are.
        exposure: their mean chance that an attack which knows a record's reference models
            says rightly whether it was learnt.
        everybody: the same of all members.
        held: how many of them each client holds that holds any, the largest first: no
            client is named, either.
    """

    records: int
    exposure: float
    everybody: float
    held: tuple[int, ...]


def record_exposures(
    signals: Signals, spread: float | None = None
) -> Float[ndarray, " records"]:
    """Return Phi((mu_in - mu_out) / 2 sigma) of each record's logit-scaled confidences.

    The chance that LiRA is right on one model, a coin having decided whether it learnt the
    record; one variance for all records, as few references know none of their own.
    Below .5 it would be right by saying the opposite of what it says.

    Args:
        signals: of the references.
        spread: sigma; None: as these references have it, at least two pairs.
    """
    from scipy.special import ndtr

    check_references(signals.inside)
    _, (inside, outside) = _means(signals)
    sigma = _sigma(signals) if spread is None else spread
    return ndtr((inside - outside) / (2 * sigma))


def _means(signals: Signals) -> tuple[ndarray, tuple[ndarray, ndarray]]:
    """Return the confidences, and each record's mean over those that learnt it or not."""
    phi = logit(signals.references, signals.labels)
    inside = phi.mean(axis=1, where=signals.inside)
    return phi, (inside, phi.mean(axis=1, where=~signals.inside))


def _sigma(signals: Signals) -> float:
    phi, (inside, outside) = _means(signals)
    left = phi - np.where(signals.inside, inside[:, None], outside[:, None])
    # each side's mean takes one degree of freedom, and few references have few of them
    freedom = max(1, phi.size - 2 * len(phi))
    return max(float(np.sqrt((left**2).sum() / freedom)), 1e-6)


def exposed_counts(
    signals: Signals, member: Bool[ndarray, " records"], owner: Int[ndarray, " records"]
) -> ExposedCounts | None:
    """Return who holds the most exposed 1% of the members, in counts.

    None with fewer references than two pairs, each of which learnt opposite halves.

    Args:
        signals: of members and non-members.
        member: which records are members.
        owner: a number of each record's client.
    """
    models = signals.inside.shape[1]
    if models < 2 * PAIR:
        return None
    pair, sigma = np.arange(models) // PAIR, _sigma(signals)
    halves = (_by(signals, pair % 2 == half) for half in (0, 1))
    ranked, judged = (record_exposures(each, sigma)[member] for each in halves)
    top = top_share(ranked, SHARE)
    held = Counter(owner[member][top].tolist())
    return ExposedCounts(
        records=int(top.sum()),
        exposure=float(judged[top].mean()),
        everybody=float(judged.mean()),
        held=tuple(sorted(held.values(), reverse=True)),
    )


def _by(signals: Signals, chosen: Bool[ndarray, " models"]) -> Signals:
    return replace(
        signals,
        references=signals.references[:, chosen],
        inside=signals.inside[:, chosen],
    )
