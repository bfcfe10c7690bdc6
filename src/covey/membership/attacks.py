"""Membership inference from scores alone: thresholds, their rates, and their ranking.

A score says how much a record looks like a member; higher is more member-like. Here it is
minus the loss. Everything works on plain arrays.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

__all__ = [
    "Rates",
    "auc",
    "best_threshold",
    "cross_fitted",
    "folds",
    "rates_at",
    "scores_of",
]


@dataclass(frozen=True, slots=True)
class Rates:
    """How often an attack is right.

    Attributes:
        tpr: share of the members that it calls members.
        tnr: share of the non-members that it calls non-members.
        members, non_members: how many of each there were.
        fitted: accuracy of one threshold on the very records that it is fitted to; None:
            no threshold was fitted.
    """

    tpr: float
    tnr: float
    members: int
    non_members: int
    fitted: float | None = None

    @property
    def accuracy(self) -> float:
        """MIA accuracy (TPR + TNR) / 2; 0.5 is a coin toss (IFCA-MIR, Eq. 8)."""
        return (self.tpr + self.tnr) / 2

    @property
    def standard_error(self) -> float:
        """Of `accuracy` a: SE^2 = [TPR (1 - TPR) / n1 + TNR (1 - TNR) / n0] / 4.

        Of a fitted threshold: SE^2 = a (1 - a) (1 / n1 + 1 / n0) / 4 + D^2 / 3, with D
        the difference between `fitted` and a. The best threshold may lie elsewhere, so
        that its rates are not known; of all with this accuracy, equal ones vary most.
        What it achieves lies between a, which is too low on other records, and `fitted`,
        too high on its own; anywhere between is D^2 / 3 from an end in the mean square.

        Each side counts with one more record that is right and one that is wrong: no
        sample is certain.

        References:
            Agresti, Caffo, Simple and Effective Confidence Intervals for Proportions and
            Differences of Proportions, 2000.
        """
        rates, left_open = (self.tpr, self.tnr), 0.0
        if self.fitted is not None:
            rates, left_open = (self.accuracy,) * 2, self.fitted - self.accuracy
        variance = left_open**2 / 3
        for rate, n in zip(rates, (self.members, self.non_members), strict=True):
            p = (n * rate + 1) / (n + 2)
            variance += p * (1 - p) / (n + 2) / 4
        return float(np.sqrt(variance))


def scores_of(losses: Float[ndarray, " records"]) -> Float[ndarray, " records"]:
    """Return minus the losses; a diverged one (NaN) is the least member-like of all."""
    return -np.nan_to_num(losses, nan=np.inf, posinf=np.inf)


def auc(
    members: Float[ndarray, " members"], non_members: Float[ndarray, " others"]
) -> float:
    """Return the probability that a member scores higher; ties count half."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([members, non_members]))
    n1, n0 = len(members), len(non_members)
    return float((ranks[:n1].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def best_threshold(
    members: Float[ndarray, " members"], non_members: Float[ndarray, " others"]
) -> float:
    """Return the score from which on "member" is the most accurate answer.

    argmax_c  P[score >= c | member] + P[score < c | non-member]
    """
    candidates = np.unique(np.concatenate([members, non_members]))
    missed = np.searchsorted(np.sort(members), candidates) / len(members)
    rejected = np.searchsorted(np.sort(non_members), candidates) / len(non_members)
    return float(candidates[np.argmax(rejected - missed)])


def rates_at(
    threshold: float,
    members: Float[ndarray, " members"],
    non_members: Float[ndarray, " others"],
) -> Rates:
    """Return the rates of "member if score >= threshold"."""
    return Rates(
        tpr=float(np.mean(members >= threshold)),
        tnr=float(np.mean(non_members < threshold)),
        members=len(members),
        non_members=len(non_members),
    )


def folds(
    count: int, parts: int, generator: np.random.Generator
) -> Int[ndarray, " count"]:
    """Assign records to `parts` folds at random, as evenly as possible."""
    return generator.permutation(count) % parts


def cross_fitted(
    members: Float[ndarray, " members"],
    non_members: Float[ndarray, " others"],
    generator: np.random.Generator,
    parts: int = 5,
) -> Rates:
    """Return the rates of thresholds that never saw the records they judge.

    The best threshold on the judged records themselves would score 0.56 on 50 records
    of pure noise.
    """
    inside = folds(len(members), parts, generator)
    outside = folds(len(non_members), parts, generator)
    hits = rejections = 0.0
    for part in range(parts):
        threshold = best_threshold(
            members[inside != part], non_members[outside != part]
        )
        hits += np.sum(members[inside == part] >= threshold)
        rejections += np.sum(non_members[outside == part] < threshold)
    everywhere = best_threshold(members, non_members)
    return Rates(
        tpr=float(hits / len(members)),
        tnr=float(rejections / len(non_members)),
        members=len(members),
        non_members=len(non_members),
        fitted=rates_at(everywhere, members, non_members).accuracy,
    )
