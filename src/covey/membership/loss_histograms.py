"""The federated red team's arithmetic: a membership risk out of counts alone.

Every client scores its own members and its own holdout with the cluster model, and sends
only how many losses fell between agreed thresholds, split at random into a few folds. The
server adds the counts up, without those of clients that differ too much from most.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from covey.membership.assessment import Counts
from covey.membership.attacks import Rates, folds

__all__ = [
    "EDGES",
    "FOLDS",
    "auc_of_counts",
    "combined_counts",
    "loss_counts",
    "rates_of_counts",
]

FOLDS = 5
EDGES = np.geomspace(1e-6, 20.0, 80)
"""The agreed thresholds, in nats: over-fitted members differ by orders of magnitude."""

LARGEST = 5
"""A client counts as so many times the median of the clients' examples at most."""

FENCE = 4.0
"""Standard deviations from the median at which a client's own AUC is left out."""

MIN_TO_COMPARE = 3
"""Clients from which on they are compared."""


def combined_counts(
    inside: Sequence[Counts], outside: Sequence[Counts]
) -> tuple[Counts, Counts]:
    """Return the sums of clients' counts, of members and of held-out examples.

    Left out is who is further than 4 max(s_i, s) from the median of the clients' own AUCs;
    s_i^2 = (m + n + 1) / (12 m n) with its m members and n held-out examples, and s is
    1.4826 times the median distance. Whoever has more than 5 times the median of all
    examples counts as having so many. Where nobody does either, these are plain sums.
    """
    if not inside:
        nothing = np.zeros((1, 1), dtype=np.int64)
        return nothing, nothing
    kept = _usual(inside, outside)
    pairs = [(inside[i], outside[i]) for i in kept]
    sizes = [int(a.sum() + b.sum()) for a, b in pairs]
    most = (
        LARGEST * int(np.median(sizes)) if len(sizes) >= MIN_TO_COMPARE else max(sizes)
    )
    shares = [
        (a, b) if size <= most else (a * most // size, b * most // size)
        for (a, b), size in zip(pairs, sizes, strict=True)
    ]
    return (
        np.sum([a for a, _ in shares], axis=0),
        np.sum([b for _, b in shares], axis=0),
    )


def _usual(inside: Sequence[Counts], outside: Sequence[Counts]) -> list[int]:
    """Return the places of the clients whose own AUC is not far from most."""
    both = [i for i, a in enumerate(inside) if a.sum() and outside[i].sum()]
    if len(both) < MIN_TO_COMPARE:
        return list(range(len(inside)))
    aucs = np.array([auc_of_counts(inside[i], outside[i]) for i in both])
    away = np.abs(aucs - np.median(aucs))
    spread = 1.4826 * np.median(away)
    sizes = [(float(inside[i].sum()), float(outside[i].sum())) for i in both]
    errors = np.array([(m + n + 1) / (12 * m * n) for m, n in sizes])
    far = away > FENCE * np.maximum(np.sqrt(errors), spread)
    left_out = {i for i, odd in zip(both, far, strict=True) if odd}
    return [i for i in range(len(inside)) if i not in left_out]


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

    def excess(among: Bool[ndarray, " folds"]) -> Float[ndarray, " bins"]:
        below, wrong = (
            side[among].sum(0).cumsum() / max(1, side[among].sum())
            for side in (members, non_members)
        )
        return below - wrong

    hits = rejections = 0
    for fold in range(FOLDS):
        threshold = int(np.argmax(excess(np.arange(FOLDS) != fold)))
        hits += members[fold, : threshold + 1].sum()
        rejections += non_members[fold, threshold + 1 :].sum()
    return Rates(
        tpr=float(hits / members.sum()),
        tnr=float(rejections / non_members.sum()),
        members=int(members.sum()),
        non_members=int(non_members.sum()),
        fitted=float(1 + excess(np.full(FOLDS, fill_value=True)).max()) / 2,
    )


def auc_of_counts(
    members: Int[ndarray, "folds bins"], non_members: Int[ndarray, "folds bins"]
) -> float:
    """Return the probability that a member's bin is lower; the same bin counts half."""
    p, q = members.sum(0) / members.sum(), non_members.sum(0) / non_members.sum()
    above = 1 - q.cumsum()
    return float((p * (above + q / 2)).sum())
