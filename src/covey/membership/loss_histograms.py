"""The federated red team's arithmetic: a membership risk out of counts alone.

Every client scores its own members and its own holdout with the cluster model, and sends
only how many losses fell between agreed thresholds, split at random into a few folds. The
server adds the counts up; sums are all it needs, so they may come out of a secure sum.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from covey.membership.attacks import Rates, folds

__all__ = ["EDGES", "FOLDS", "auc_of_counts", "loss_counts", "rates_of_counts"]

FOLDS = 5
EDGES = np.geomspace(1e-6, 20.0, 80)
"""The agreed thresholds, in nats: over-fitted members differ by orders of magnitude."""


def loss_counts(
    losses: Float[ndarray, " examples"], generator: np.random.Generator
) -> Int[ndarray, "folds bins"]:
    """Return what a client sends: the number of losses per fold and bin."""
    bins = np.searchsorted(EDGES, losses, side="left")
    counts = np.zeros((FOLDS, len(EDGES) + 1), dtype=np.int64)
    np.add.at(counts, (folds(len(losses), FOLDS, generator), bins), 1)
    return counts


def rates_of_counts(
    members: Int[ndarray, "folds bins"], non_members: Int[ndarray, "folds bins"]
) -> Rates:
    """Return the rates of a loss threshold fitted on the other folds, for each fold.

    A record counts as a member if its loss lies in or below the threshold's bin.
    """
    hits = rejections = 0
    for fold in range(FOLDS):
        others = np.arange(FOLDS) != fold
        below = members[others].sum(0).cumsum() / max(1, members[others].sum())
        wrong = non_members[others].sum(0).cumsum() / max(1, non_members[others].sum())
        threshold = int(np.argmax(below - wrong))
        hits += members[fold, : threshold + 1].sum()
        rejections += non_members[fold, threshold + 1 :].sum()
    return Rates(
        tpr=float(hits / members.sum()),
        tnr=float(rejections / non_members.sum()),
        members=int(members.sum()),
        non_members=int(non_members.sum()),
    )


def auc_of_counts(
    members: Int[ndarray, "folds bins"], non_members: Int[ndarray, "folds bins"]
) -> float:
    """Return the probability that a member's bin is lower; the same bin counts half."""
    p, q = members.sum(0) / members.sum(), non_members.sum(0) / non_members.sum()
    above = 1 - q.cumsum()
    return float((p * (above + q / 2)).sum())
