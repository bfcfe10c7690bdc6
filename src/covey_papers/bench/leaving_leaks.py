"""What leaving gives away: a client's examples and labels, from models before and after.

An observer who holds the model before an answer and the one after it looks at what became
less likely: that is what the leaver had brought. Beside it, the same observer with the
model after alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from covey.membership import Estimate, auc, clopper_pearson
from covey_papers.bench.forgetting_data import LABEL
from covey_papers.bench.forgetting_runs import Seen

__all__ = ["Leak", "Leaked", "Pair", "leaked"]

Pair = tuple[Seen, Seen]
"""What an observer holds: the model before, and the one after."""


@dataclass(frozen=True, slots=True)
class Leak:
    """What one observer finds, over seeds.

    Attributes:
        membership: the AUC of the leaver's examples against fresh ones like them, the mean
            over seeds; the interval is of that mean, with these very examples.
        label: how often the class named first is the one that the leaver has most of.
    """

    membership: Estimate
    label: Estimate


@dataclass(frozen=True, slots=True)
class Leaked:
    """What both models tell, and what the one after tells alone."""

    both: Leak
    after: Leak


def leaked(pairs: Sequence[Pair]) -> Leaked:
    """Return what observers find out, given one pair per seed."""
    return Leaked(
        _leak(
            [_lost(before, after) for before, after in pairs],
            [_array(b.shares) - _array(a.shares) for b, a in pairs],
        ),
        _leak(
            [(_log_p(after.leaver), _log_p(after.fresh)) for _, after in pairs],
            [_array(after.shares) for _, after in pairs],
        ),
    )


def _lost(before: Seen, after: Seen) -> tuple[ndarray, ndarray]:
    """Return what examples lost of their log-probability: members', then others'."""
    return (
        _log_p(before.leaver) - _log_p(after.leaver),
        _log_p(before.fresh) - _log_p(after.fresh),
    )


def _leak(sides: Sequence[tuple[ndarray, ndarray]], shares: Sequence[ndarray]) -> Leak:
    areas = _array([auc(members, others) for members, others in sides])
    error = areas.std(ddof=1) / np.sqrt(len(areas)) if len(areas) > 1 else 0.5
    hits = sum(_named_first(each) for each in shares)
    low, high = clopper_pearson(round(hits), len(shares))
    return Leak(
        Estimate.around(float(areas.mean()), float(error)),
        Estimate(hits / len(shares), low, high),
    )


def _named_first(shares: ndarray) -> float:
    """Return whether the leaver's class has the largest share; of ties, the chance."""
    largest = shares == shares.max()
    return float(largest[LABEL]) / float(largest.sum())


def _log_p(confidences: Sequence[float]) -> ndarray:
    """Return log p of log(p / (1 - p))."""
    return -np.logaddexp(0.0, -_array(confidences))


def _array(values: Sequence[float]) -> ndarray:
    return np.asarray(values, dtype=np.float64)
