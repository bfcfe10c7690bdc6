"""Sketches: distances are right on average, and off as often as the bound says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey.aggregation.partition import Sketcher, sketch_error, sketcher

seeds = st.integers(0, 2**32 - 1)
M, D, DRAWS = 64, 1000, 2000


def drawn(seed: int, d: int = D, m: int = M) -> Sketcher:
    return sketcher(d, np.random.default_rng(seed), m)


def spiky(d: int) -> Tensor:
    """Four coordinates, a run apart, are all of it: the worst place for a sketch."""
    vector = torch.zeros(d)
    vector[: 4 * M : M] = 1.0
    return vector


VECTORS = {
    "dense": torch.randn(D, generator=torch.Generator().manual_seed(1)),
    "spiky": spiky(D),
    "constant": torch.ones(D),
    "decaying": 1 / torch.arange(1.0, D + 1),
}


@pytest.mark.parametrize("name", VECTORS)
def test_squared_lengths_are_right_on_average_and_spread_no_more_than_told(name: str):
    vector = VECTORS[name]
    true = float(vector.square().sum())
    found = np.array([float(drawn(i)(vector).square().sum()) / true for i in range(DRAWS)])
    assert abs(found.mean() - 1) < 4 * found.std() / math.sqrt(DRAWS)
    # a variance of so many draws is itself known to some 10 per cent, less for long tails
    assert found.std() < 1.15 * sketch_error(M)


def test_pairs_are_off_by_more_than_the_error_no_more_often_than_told():
    error, chance = 0.5, 0.125
    assert math.ceil(2 / (error**2 * chance)) == M  # Chebyshev
    for vector in VECTORS.values():
        true = float(vector.square().sum())
        off = [abs(float(drawn(i)(vector).square().sum()) / true - 1) > error for i in range(300)]
        assert np.mean(off) < chance


def test_two_coordinates_share_a_place_in_one_of_m_maps():
    here, there = torch.zeros(D), torch.zeros(D)
    here[3], there[5 * M + 40] = 1.0, 1.0
    met = [bool((s(here) * s(there)).any()) for s in map(drawn, range(DRAWS))]
    expected = DRAWS / M
    assert abs(sum(met) - expected) < 4 * math.sqrt(expected)


@given(seeds, st.integers(1, 300), st.integers(1, 80))
def test_a_sketch_is_linear(seed: int, d: int, m: int):
    sketch = drawn(seed, d, m)
    draws = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, d, generator=draws)
    assert sketch(u).shape == (m,)
    assert torch.allclose(sketch(2 * u - v), 2 * sketch(u) - sketch(v), atol=1e-4)


@given(seeds, st.integers(1, M))
def test_few_coordinates_keep_their_lengths(seed: int, d: int):
    sketch = drawn(seed, d)
    vector = torch.randn(d, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(sketch(vector).norm(), vector.norm())
    assert sketch.surely_within(2.0) == 2.0


def test_who_is_too_far_is_hardly_ever_taken_for_near():
    vector = spiky(D)
    distance = 0.999 * float(vector.norm())
    most = [drawn(i, m=1024).surely_within(distance) for i in range(2)]
    assert most[0] == most[1] == distance  # one run: nothing is estimated
    wide = torch.zeros(6000)
    wide[: 4 * 1024 : 1024] = 1.0
    wrong = [
        float(s(wide).norm()) <= s.surely_within(distance)
        for s in (drawn(i, 6000, 1024) for i in range(1000))
    ]
    assert np.mean(wrong) <= 0.005


def test_how_near_an_estimate_must_be_by_hand():
    """With m = 4,096: e = sqrt(2 / (4,096 * .005)) = .3125, sqrt(1 - e) = .829156."""
    estimate = drawn(0, d=2 * 4096, m=4096).surely_within(2.0)
    assert estimate == pytest.approx(2 * 0.829156, abs=1e-6)
    assert drawn(0, d=128, m=64).surely_within(2.0) == 0  # nobody is sure to be near
    assert drawn(0, d=64, m=64).surely_within(2.0) == 2  # no distance was changed


def test_the_same_stream_gives_the_same_sketch_and_another_one_does_not():
    vector = VECTORS["dense"]
    assert torch.equal(drawn(7)(vector), drawn(7)(vector))
    assert not torch.equal(drawn(7)(vector), drawn(8)(vector))
