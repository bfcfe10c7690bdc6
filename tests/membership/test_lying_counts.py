"""What clients that lie about their losses move of a cluster's risk."""

import numpy as np
import pytest

from covey.membership.estimators import EDGES, FOLDS, combined_counts, loss_counts, risk_of_counts

MEMBERS, HELD_OUT = 80, 20


def honest(seed: int, clients: int, apart: float = 0.5):
    """Counts of clients whose members' log-losses are lower by so much."""
    generator = np.random.default_rng(seed)
    pairs = [
        (
            loss_counts(np.exp(generator.normal(-apart, 1, MEMBERS)), generator),
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
        found = combined_counts(inside, outside)
        assert np.array_equal(found[0], sum(inside))
        assert np.array_equal(found[1], sum(outside))


MOVED = {1: 0.0, 2: 0.25, 3: 0.35, 4: 0.45}
"""The most that so many of ten move the risk by."""


@pytest.mark.parametrize(("scale", "turned"), [(1, True), (10**3, False)])
@pytest.mark.parametrize(("liars", "most"), MOVED.items())
def test_a_minority_that_lies_outright_pins_no_risk(liars, most, scale, turned):
    for seed in range(5):
        inside, outside = honest(seed, 10 - liars)
        lies = [lie(scale, turned=turned) for _ in range(liars)]
        found = risk(inside + [a for a, _ in lies], outside + [b for _, b in lies])
        assert abs(found - risk(inside, outside)) <= most


def test_who_has_no_holdout_is_counted_and_bounded_by_five_clients():
    inside, outside = honest(0, 9)
    many, none = lie(10**6)[0], np.zeros_like(inside[0])
    members, _ = combined_counts([*inside, many], [*outside, none])
    assert members.sum() - np.sum(inside) <= 5 * (MEMBERS + HELD_OUT)
