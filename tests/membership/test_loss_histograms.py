"""What clients count, against what could be known from every single loss."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.membership.attacks import auc, best_threshold, risk_at
from covey.membership.estimators import EDGES, FOLDS, auc_of_counts, loss_counts, risk_of_counts

seeds = st.integers(0, 2**32 - 1)


def drawn_losses(seed: int, size: int, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).exponential(size=size)


def bins_of(losses: np.ndarray) -> np.ndarray:
    return np.array([sum(loss > edge for edge in EDGES) for loss in losses])


@given(seeds, st.integers(0, 40))
def test_counts_are_the_binned_losses_dealt_out_evenly(seed, size):
    losses = drawn_losses(seed, size)
    counts = loss_counts(losses, np.random.default_rng(seed))
    bins = bins_of(losses)
    expected = [int((bins == b).sum()) for b in range(len(EDGES) + 1)]
    assert counts.sum(axis=0).tolist() == expected
    per_fold = counts.sum(axis=1)
    assert len(per_fold) == FOLDS
    assert per_fold.max() - per_fold.min() <= 1


def test_the_outermost_bins_take_everything():
    losses = np.array([0.0, 1e-6, 20.0, 21.0, math.inf, math.nan])
    counts = loss_counts(losses, np.random.default_rng(0)).sum(axis=0)
    assert counts[0] == 2  # up to and with the first edge
    assert counts[-2] == 1  # the last edge belongs to the bin below it
    assert counts[-1] == 3  # a diverged loss is a high one


@given(seeds)
def test_auc_of_counts_is_the_auc_of_the_bins(seed):
    inside, outside = drawn_losses(seed, 40, 0.3), drawn_losses(seed + 1, 30)
    generator = np.random.default_rng(seed)
    found = auc_of_counts(loss_counts(inside, generator), loss_counts(outside, generator))
    expected = auc(-bins_of(inside).astype(float), -bins_of(outside).astype(float))
    assert found == pytest.approx(expected, abs=1e-12)
    # and the bins are fine enough: 1.23 times from one edge to the next
    assert found == pytest.approx(auc(-inside, -outside), abs=0.05)


@given(seeds)
def test_risk_of_counts_are_those_of_thresholds_fitted_elsewhere(seed):
    """Against a loop over folds that asks the exact attack, on bins instead of losses."""
    generator = np.random.default_rng(seed)
    sides = []
    for size, scale in ((40, 0.3), (30, 1.0)):
        bins = bins_of(drawn_losses(seed + size, size, scale))
        fold = generator.permutation(size) % FOLDS
        counts = np.zeros((FOLDS, 81), dtype=np.int64)
        np.add.at(counts, (fold, bins), 1)
        sides.append((bins, fold, counts))
    (inside, in_fold, members), (outside, out_fold, others) = sides
    hits = rejections = 0
    for part in range(FOLDS):
        seen, judged = inside[in_fold != part], inside[in_fold == part]
        seen_out, judged_out = outside[out_fold != part], outside[out_fold == part]

        def excess(b: int, low: np.ndarray = seen, high: np.ndarray = seen_out) -> float:
            return float(np.mean(low <= b) - np.mean(high <= b))

        threshold = max(range(81), key=excess)
        hits += int((judged <= threshold).sum())
        rejections += int((judged_out > threshold).sum())
        exact = best_threshold(-seen.astype(float), -seen_out.astype(float))
        best = risk_at(exact, -seen.astype(float), -seen_out.astype(float))
        assert 0.5 + excess(threshold) / 2 == pytest.approx(best.risk)
    rates = risk_of_counts(members, others)
    assert rates.risk == pytest.approx((hits / 40 + rejections / 30) / 2)
    assert (rates.members, rates.non_members) == (40, 30)
