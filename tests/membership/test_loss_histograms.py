"""What clients count, honestly or not, against what every single loss says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Examples, ReferenceEngine, RiskContext, Streams, Target
from covey.algorithms.client_requests import ClientResponse
from covey.algorithms.remote import loss_counter
from covey.data.examples import Client, Preference
from covey.membership.attacks import auc, best_threshold, risk_at
from covey.membership.estimators import (
    EDGES,
    FOLDS,
    FederatedEstimator,
    auc_of_counts,
    combined_counts,
    loss_counts,
    masked_loss_counter,
    risk_of_counts,
)

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
    area = auc_of_counts(loss_counts(inside, generator), loss_counts(outside, generator))
    expected = auc(-bins_of(inside).astype(float), -bins_of(outside).astype(float))
    assert area == pytest.approx(expected, abs=1e-12)
    # and the bins are fine enough: 1.23 times from one edge to the next
    assert area == pytest.approx(auc(-inside, -outside), abs=0.05)


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


MEMBERS, HELD_OUT = 80, 20


def honest(seed: int, clients: int, distance: float = 0.5):
    """Counts of clients whose members' log-losses are lower by so much."""
    generator = np.random.default_rng(seed)
    pairs = [
        (
            loss_counts(np.exp(generator.normal(-distance, 1, MEMBERS)), generator),
            loss_counts(np.exp(generator.normal(0, 1, HELD_OUT)), generator),
        )
        for _ in range(clients)
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


def lie(scale: int = 1, *, turned: bool = False):
    """Counts that tell members and others apart without any error, or all wrong."""
    tables = [np.zeros((FOLDS, len(EDGES) + 1), dtype=np.int64) for _ in range(2)]
    low, high = (-1, 0) if turned else (0, -1)
    tables[0][:, low] = scale * MEMBERS // FOLDS
    tables[1][:, high] = scale * HELD_OUT // FOLDS
    return tables


def risk(inside, outside) -> float:
    return risk_of_counts(*combined_counts(inside, outside)).risk


@pytest.mark.parametrize("clients", [1, 3, 10])
def test_honest_clients_are_summed_exactly(clients):
    for seed in range(5):
        inside, outside = honest(seed, clients)
        counts = combined_counts(inside, outside)
        assert np.array_equal(counts[0], sum(inside))
        assert np.array_equal(counts[1], sum(outside))


MOVED = {1: 0.0, 2: 0.25, 3: 0.35, 4: 0.45}
"""The most that so many of ten move the risk by."""


@pytest.mark.parametrize(("scale", "turned"), [(1, True), (10**3, False)])
@pytest.mark.parametrize(("liars", "most"), MOVED.items())
def test_a_minority_that_lies_outright_pins_no_risk(liars, most, scale, turned):
    for seed in range(5):
        inside, outside = honest(seed, 10 - liars)
        lies = [lie(scale, turned=turned) for _ in range(liars)]
        area = risk(inside + [a for a, _ in lies], outside + [b for _, b in lies])
        assert abs(area - risk(inside, outside)) <= most


def test_who_has_no_holdout_is_counted_and_bounded_by_five_clients():
    inside, outside = honest(0, 9)
    many, none = lie(10**6)[0], np.zeros_like(inside[0])
    members, _ = combined_counts([*inside, many], [*outside, none])
    assert members.sum() - np.sum(inside) <= 5 * (MEMBERS + HELD_OUT)


NETWORK = torch.nn.Linear(2, 2)
COUNTS = (np.full((FOLDS, len(EDGES) + 1), 3), np.full((FOLDS, len(EDGES) + 1), 2))


def member(place: int) -> Client:
    name, nothing = f"c{place}", Examples(torch.zeros(0, 2), torch.zeros(0).long())
    return Client(name, name, None, nothing, nothing, Preference(0.0, 1.0))


def finding(reporting: int):
    """The figure of a cluster of nine, of which so many report."""
    start = dict(NETWORK.state_dict())
    target = Target(0, start, tuple(map(member, range(9))), 1)

    def send(request, cohort):
        return tuple(
            ClientResponse(c.handle, 0, members=COUNTS[0], held_out=COUNTS[1])
            for c in cohort[:reporting]
        )

    def count(one, streams):
        return loss_counter(send)([one], lambda _: streams)[0]

    context = RiskContext(ReferenceEngine(NETWORK), count=count)
    return FederatedEstimator().estimate(target, context, Streams(1))


@pytest.mark.parametrize("reporting", [0, 4])
def test_no_figure_is_taken_from_fewer_than_five(reporting):
    estimate = finding(reporting)
    assert not estimate.counts
    assert "fewer than 5 clients sent counts" in estimate.reason
    assert finding(5).is_known


@pytest.mark.parametrize("members", [0, 2])
def test_fewer_than_a_sum_is_over_count_nothing(members):
    target = Target(0, dict(NETWORK.state_dict()), tuple(map(member, range(members))), 1)
    counter = masked_loss_counter(ReferenceEngine(NETWORK), 3)(target, Streams(1))
    assert not np.any(counter)
