import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey.aggregation.partition import (
    ROWS,
    Sets,
    Sketcher,
    balanced_kmeans,
    diameters,
    mdav,
    neighbours,
    public_random,
    sketch_error,
    sketcher,
)

seeds = st.integers(0, 2**32 - 1)


@st.composite
def sizes(draw: st.DrawFn, most: int = 20) -> tuple[int, int]:
    n = draw(st.integers(1, most))
    return n, draw(st.integers(1, n))


def by_mdav(points: Tensor, k: int, seed: int) -> Sets:
    return mdav(points, k)


def by_kmeans(points: Tensor, k: int, seed: int) -> Sets:
    return balanced_kmeans(points, k, np.random.default_rng(seed))


def blindly(points: Tensor, k: int, seed: int) -> Sets:
    return public_random(len(points), k, np.random.default_rng(seed))


EVERY = pytest.mark.parametrize("divide", [by_mdav, by_kmeans, blindly])


def cloud(n: int, seed: int, d: int = 3) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=draws, dtype=torch.float64)


def line(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


@EVERY
@given(sizes(), seeds)
def test_every_point_is_in_one_of_floor_n_over_k_sets_of_k_to_2k_minus_1(divide, size, seed):
    n, k = size
    diverged = cloud(n, seed)
    diverged[0, 0] = torch.nan
    for points in (cloud(n, seed), diverged, torch.ones(n, 2), torch.empty(n, 0)):
        sets = divide(points, k, seed)
        assert sorted(i for members in sets for i in members) == list(range(n))
        assert len(sets) == n // k
        assert all(k <= len(members) <= 2 * k - 1 for members in sets)
        assert list(sets) == sorted(tuple(sorted(members)) for members in sets)


def test_mdav_on_a_line_by_hand():
    # Seven points, mean 4.9. Furthest from it is 20 (index 3), which takes 8 (index 5).
    # Five are left (>= 2k): furthest from 20 is 0 (index 1), which takes 0.5 (index 6).
    # Three are left (< 2k): 2, 1 and 3 are the last set.
    assert mdav(line(2, 0, 1, 20, 3, 8, 0.5), 2) == ((0, 2, 4), (1, 6), (3, 5))


@given(st.integers(1, 4), st.integers(0, 3), seeds)
def test_no_balanced_division_around_the_found_centres_is_cheaper(k, more, seed):
    n = 2 * k + min(more, k - 1)
    points = cloud(n, seed)
    sets = by_kmeans(points, k, seed)
    centres = torch.stack([points[list(members)].mean(dim=0) for members in sets])
    away = torch.cdist(points, centres).square().numpy()

    def cost(first: Sequence[int]) -> float:
        second = sorted({*range(n)} - {*first})
        return away[list(first), 0].sum() + away[second, 1].sum()

    others = (
        combination for size in range(k, n - k + 1) for combination in combinations(range(n), size)
    )
    assert all(cost(sets[0]) <= cost(other) + 1e-9 for other in others)


def test_diameters_and_neighbours_by_hand():
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [9.0, 9.0], [0.0, 1.0]])
    sets = ((0, 1, 3), (2,))
    assert diameters(points, sets) == (5.0, 0.0)
    # 0 - 1: 5, 1 - 3: sqrt(9 + 9) = 4.24, 0 - 3: 1
    assert neighbours(points, sets, 4.5) == (((3,), (3,), (0, 1)), ((),))
    assert neighbours(points, sets, 5.0) == (((1, 3), (0, 3), (0, 1)), ((),))
    assert neighbours(points, sets, 0.5) == (((), (), ()), ((),))


def test_cosine_diameters_and_neighbours_by_hand():
    points = torch.tensor([[1.0, 0.0], [5.0, 5.0], [0.0, 2.0], [-3.0, 0.0], [0.0, 0.0]])
    # 1 - cos: of 45 degrees .2929, of 90 degrees 1, of 135 degrees 1.7071
    sets = ((0, 1, 2), (1, 3))
    assert diameters(points, sets, "cosine") == pytest.approx((1.0, 1 + 0.5**0.5))
    assert neighbours(points, sets, 0.293, "cosine") == (((1,), (0, 2), (1,)), ((), ()))
    assert neighbours(points, ((0, 3, 4),), 2.0, "cosine") == (((3,), (0,), ()),)  # 0: no angle


@EVERY
@pytest.mark.parametrize(("n", "k"), [(3, 4), (3, 0)])
def test_too_few_points_are_refused(divide, n, k):
    with pytest.raises(ValueError, match=rf"among {n} points, found k = {k}: ask"):
        divide(torch.zeros(n, 2), k, 0)


def plain_mdav(points: Tensor, k: int) -> Sets:
    """MDAV word by word, with every distance and every mean taken anew."""
    left, sets = list(range(len(points))), list[list[int]]()

    def furthest(centre: Tensor) -> int:
        return left[int((points[left] - centre).norm(dim=1).argmax())]

    def close(seed: int) -> None:
        away = (points[left] - points[seed]).norm(dim=1)
        order = [left[i] for i in away.argsort(stable=True).tolist()]
        sets.append(order[:k])
        left[:] = sorted(order[k:])

    while len(left) >= 2 * k:
        extreme = furthest(points[left].mean(dim=0))
        close(extreme)
        if len(left) >= 2 * k:
            close(furthest(points[extreme]))
    return tuple(sorted(tuple(sorted(group)) for group in [*sets, left]))


@pytest.mark.parametrize("n", [200, ROWS + 100])
def test_mdav_does_what_its_words_say_for_few_points_and_for_many(n):
    points = cloud(n, n, 4)
    assert mdav(points, 60) == plain_mdav(points, 60)


# sketches: distances are right on average, and off as often as the bound says


M, D, DRAWS = 64, 1000, 500


def a_sketch(seed: int, d: int = D, m: int = M) -> Sketcher:
    return sketcher(d, np.random.default_rng(seed), m)


VECTORS = {
    "dense": torch.randn(D, generator=torch.Generator().manual_seed(1)),
    # four coordinates, a run apart, are all of it: the worst place for a sketch
    "spiky": (torch.arange(D) % M == 0).float() * (torch.arange(D) < 4 * M),
}


@pytest.mark.parametrize("name", VECTORS)
def test_squared_lengths_are_right_on_average_and_spread_no_more_than_said(name):
    vector = VECTORS[name]
    true = float(vector.square().sum())
    ratios = np.array([float(a_sketch(i)(vector).square().sum()) / true for i in range(DRAWS)])
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / math.sqrt(DRAWS)
    # a variance of so many draws is itself known to some 20 per cent, less for long tails
    assert ratios.std() < 1.3 * sketch_error(M)


def test_how_near_an_estimate_must_be_by_hand():
    """With m = 4,096: e = sqrt(2 / (4,096 * .005)) = .3125, sqrt(1 - e) = .829156."""
    estimate = a_sketch(0, d=2 * 4096, m=4096).surely_within(2.0)
    assert estimate == pytest.approx(2 * 0.829156, abs=1e-6)
    assert a_sketch(0, d=128, m=64).surely_within(2.0) == 0  # nobody is sure to be near
    assert a_sketch(0, d=64, m=64).surely_within(2.0) == 2  # no distance was changed
