"""Sketches: distances are right on average, and off as often as the bound says."""

import math

import numpy as np
import pytest
import torch

from covey.aggregation.partition import Sketcher, sketch_error, sketcher

M, D, DRAWS = 64, 1000, 500


def drawn(seed: int, d: int = D, m: int = M) -> Sketcher:
    return sketcher(d, np.random.default_rng(seed), m)


VECTORS = {
    "dense": torch.randn(D, generator=torch.Generator().manual_seed(1)),
    # four coordinates, a run apart, are all of it: the worst place for a sketch
    "spiky": (torch.arange(D) % M == 0).float() * (torch.arange(D) < 4 * M),
}


@pytest.mark.parametrize("name", VECTORS)
def test_squared_lengths_are_right_on_average_and_spread_no_more_than_told(name):
    vector = VECTORS[name]
    true = float(vector.square().sum())
    found = np.array([float(drawn(i)(vector).square().sum()) / true for i in range(DRAWS)])
    assert abs(found.mean() - 1) < 4 * found.std() / math.sqrt(DRAWS)
    # a variance of so many draws is itself known to some 20 per cent, less for long tails
    assert found.std() < 1.3 * sketch_error(M)


def test_how_near_an_estimate_must_be_by_hand():
    """With m = 4,096: e = sqrt(2 / (4,096 * .005)) = .3125, sqrt(1 - e) = .829156."""
    estimate = drawn(0, d=2 * 4096, m=4096).surely_within(2.0)
    assert estimate == pytest.approx(2 * 0.829156, abs=1e-6)
    assert drawn(0, d=128, m=64).surely_within(2.0) == 0  # nobody is sure to be near
    assert drawn(0, d=64, m=64).surely_within(2.0) == 2  # no distance was changed
