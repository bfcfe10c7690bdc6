from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey.aggregation.partition import (
    COLUMNS,
    FEW,
    ROWS,
    Sets,
    balanced_kmeans,
    diameters,
    divided_in_parts,
    mdav,
    neighbours,
    public_random,
    unit_rows,
)

Partition = Callable[[Tensor, int, int], Sets]
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
LOOKING = pytest.mark.parametrize("divide", [by_mdav, by_kmeans])


def cloud(n: int, seed: int, d: int = 3) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=draws, dtype=torch.float64)


def blobs(sizes: tuple[int, ...], seed: int) -> tuple[Tensor, Sets]:
    """Clouds of deviation 1, their centres 40 apart, in a random order."""
    truth = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    draws = torch.Generator().manual_seed(seed)
    truth = truth[torch.randperm(len(truth), generator=draws)]
    centres = 40 * torch.eye(len(sizes), 6, dtype=torch.float64)
    members = [tuple((truth == c).nonzero().flatten().tolist()) for c in range(len(sizes))]
    return centres[truth] + cloud(len(truth), seed, 6), tuple(sorted(members))


def spread(points: Tensor, sets: Sets) -> float:
    """Sum of squared distances to the sets' means."""
    return sum(
        float((points[list(each)] - points[list(each)].mean(dim=0)).square().sum()) for each in sets
    )


def line(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def pairs_of_sets(n: int, k: int) -> list[Sets]:
    """Every way to put n points into a first and a second set of k or more."""
    everyone = set(range(n))
    firsts = [each for cut in range(k, n - k + 1) for each in combinations(range(n), cut)]
    return [(each, tuple(sorted(everyone - set(each)))) for each in firsts]


@EVERY
@given(sizes(), seeds)
def test_every_point_is_in_one_of_floor_n_over_k_sets_of_k_to_2k_minus_1(
    divide: Partition, size: tuple[int, int], seed: int
):
    n, k = size
    sets = divide(cloud(n, seed), k, seed)
    assert sorted(i for each in sets for i in each) == list(range(n))
    assert len(sets) == n // k
    assert all(k <= len(each) <= 2 * k - 1 for each in sets)
    assert list(sets) == sorted(tuple(sorted(each)) for each in sets)


@LOOKING
@given(sizes(), seeds)
def test_points_that_are_all_the_same_or_not_finite_are_divided_too(
    divide: Partition, size: tuple[int, int], seed: int
):
    n, k = size
    diverged = cloud(n, seed)
    diverged[0, 0] = torch.nan
    for points in (torch.ones(n, 2), diverged, torch.empty(n, 0)):
        sets = divide(points, k, seed)
        assert sorted(i for each in sets for i in each) == list(range(n))
        assert all(k <= len(each) <= 2 * k - 1 for each in sets)


@LOOKING
@given(sizes(), seeds, st.floats(-1e3, 1e3))
def test_shifting_all_points_changes_no_set(
    divide: Partition, size: tuple[int, int], seed: int, shift: float
):
    n, k = size
    updates = cloud(n, seed)
    models = updates + shift * cloud(1, seed + 1)
    assert divide(updates, k, seed) == divide(models, k, seed)


@LOOKING
def test_what_all_points_share_may_be_much_larger_than_what_sets_them_apart(divide: Partition):
    updates = cloud(30, 0)
    assert divide(updates + 1e8, 3, 0) == divide(updates, 3, 0)


@given(sizes(), seeds, st.data())
def test_mdav_does_not_care_about_the_order_of_the_points(
    size: tuple[int, int], seed: int, data: st.DataObject
):
    n, k = size
    order = data.draw(st.permutations(range(n)))
    points = cloud(n, seed)
    moved = mdav(points[list(order)], k)
    assert sorted(tuple(sorted(order[i] for i in each)) for each in moved) == list(mdav(points, k))


def test_mdav_on_a_line_by_hand():
    # Seven points, mean 4.9. Furthest from it is 20 (index 3), which takes 8 (index 5).
    # Five are left (>= 2k): furthest from 20 is 0 (index 1), which takes 0.5 (index 6).
    # Three are left (< 2k): 2, 1 and 3 are the last set.
    assert mdav(line(2, 0, 1, 20, 3, 8, 0.5), 2) == ((0, 2, 4), (1, 6), (3, 5))


def test_mdav_with_two_sets_of_three_or_more_by_hand():
    # 2k <= 7 < 3k: one set of k around the furthest from the mean, the rest is one.
    assert mdav(line(0, 1, 2, 3, 4, 5, 60), 3) == ((0, 1, 2, 3), (4, 5, 6))


def test_ties_go_to_the_lower_index():
    assert mdav(torch.zeros(7, 2), 2) == ((0, 1), (2, 3), (4, 5, 6))


@LOOKING
@pytest.mark.parametrize("seed", range(5))
def test_groups_of_just_k_are_found(divide: Partition, seed: int):
    points, truth = blobs((4, 4, 4, 4), seed)
    assert divide(points, 4, seed) == truth


@pytest.mark.parametrize("seed", range(5))
def test_kmeans_finds_groups_of_unlike_sizes(seed: int):
    points, truth = blobs((3, 5, 3), seed)
    assert by_kmeans(points, 3, seed) == truth


@pytest.mark.parametrize("seed", range(10))
def test_kmeans_on_a_line_by_hand(seed: int):
    # 100 would be alone; its set takes the one point that has to move least.
    assert by_kmeans(line(0, 100, 1, 2), 2, seed) == ((0, 2), (1, 3))


@given(st.integers(1, 4), st.integers(0, 3), seeds)
def test_no_balanced_division_around_the_found_centres_is_cheaper(k: int, more: int, seed: int):
    n = 2 * k + min(more, k - 1)
    points = cloud(n, seed)
    sets = by_kmeans(points, k, seed)
    centres = torch.stack([points[list(each)].mean(dim=0) for each in sets])
    away = torch.cdist(points, centres).square().numpy()

    def cost(pair: Sets) -> float:
        return away[list(pair[0]), 0].sum() + away[list(pair[1]), 1].sum()

    assert all(cost(sets) <= cost(other) + 1e-9 for other in pairs_of_sets(n, k))


@LOOKING
@given(seeds)
def test_sets_that_look_at_data_are_tighter_than_blind_ones(divide: Partition, seed: int):
    points, _ = blobs((5, 6, 7), seed)
    assert spread(points, divide(points, 5, seed)) <= spread(points, blindly(points, 5, seed))


def test_the_sets_depend_on_nothing_but_points_and_generator():
    points = cloud(20, 1)
    assert by_kmeans(points, 3, 7) == by_kmeans(points, 3, 7)
    assert blindly(points, 3, 7) == blindly(cloud(20, 2), 3, 7)
    assert blindly(points, 3, 7) != blindly(points, 3, 8)


def test_blind_sets_are_of_equal_size_and_put_any_two_together_equally_often():
    draws = np.random.default_rng(0)
    together = np.zeros((7, 7))
    for _ in range(3000):
        sets = public_random(7, 3, draws)
        assert sorted(map(len, sets)) == [3, 4]
        for each in sets:
            together[np.ix_(each, each)] += 1 / 3000
    pairs = together[np.triu_indices(7, 1)]
    assert pairs == pytest.approx((3 + 6) / 21, abs=0.04)  # pairs inside, of 21


@pytest.mark.parametrize(
    ("long", "short", "sets"), [(0, -1, ((0, 1), (2, 3))), (-1, 0, ((0, 2), (1, 3)))]
)
def test_models_wider_than_one_read_are_read_as_a_whole(long: int, short: int, sets: Sets):
    rectangle = torch.zeros(4, 2 * COLUMNS + 1)
    sides = {long: 5.0, short: 3.0}
    rectangle[[2, 3], 0] = sides[0]
    rectangle[[1, 3], -1] = sides[-1]
    assert mdav(rectangle, 2) == sets


@given(sizes(), seeds)
def test_on_unit_rows_length_does_not_count(size: tuple[int, int], seed: int):
    n, k = size
    points = cloud(n, seed)
    lengths = 1 + 9 * cloud(n, seed + 1)[:, :1].abs()
    assert mdav(unit_rows(points), k) == mdav(unit_rows(points * lengths), k)


def test_unit_rows_order_pairs_by_cosine_and_a_zero_stays():
    points = cloud(8, 3)
    rows = unit_rows(points)
    for i, j in combinations(range(8), 2):
        cosine = torch.nn.functional.cosine_similarity(points[i], points[j], dim=0)
        assert float((rows[i] - rows[j]).square().sum()) == pytest.approx(float(2 - 2 * cosine))
    assert unit_rows(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_diameters_and_neighbours_by_hand():
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [9.0, 9.0], [0.0, 1.0]])
    sets = ((0, 1, 3), (2,))
    assert diameters(points, sets) == (5.0, 0.0)
    # 0 - 1: 5, 1 - 3: sqrt(9 + 9) = 4.24, 0 - 3: 1
    assert neighbours(points, sets, 4.5) == (((3,), (3,), (0, 1)), ((),))
    assert neighbours(points, sets, 5.0) == (((1, 3), (0, 3), (0, 1)), ((),))
    assert neighbours(points, sets, 0.5) == (((), (), ()), ((),))


def test_close_points_far_from_zero_keep_their_distance():
    points = torch.tensor([[1e6], [1e6 + 0.125]])
    assert diameters(points, ((0, 1),)) == (0.125,)


def test_a_point_that_is_not_finite_is_near_nobody():
    points = line(0, torch.nan, 1)
    (found,) = diameters(points, ((0, 1, 2),))
    assert np.isnan(found)
    assert neighbours(points, ((0, 1, 2),), 2.0) == (((2,), (), (0,)),)


@given(sizes(), seeds, st.floats(0, 5))
def test_neighbours_are_mutual_and_all_within_a_diameter(
    size: tuple[int, int], seed: int, distance: float
):
    n, k = size
    points = cloud(n, seed)
    sets = mdav(points, k)
    for members, near in zip(sets, neighbours(points, sets, distance), strict=True):
        near_of = dict(zip(members, near, strict=True))
        assert all(i in near_of[j] for i in members for j in near_of[i])
    wide = max(diameters(points, sets))
    for members, near in zip(sets, neighbours(points, sets, wide), strict=True):
        assert [sorted((i, *others)) for i, others in zip(members, near, strict=True)] == [
            list(members)
        ] * len(members)


@EVERY
@pytest.mark.parametrize(("n", "k"), [(3, 4), (3, 0), (0, 1)])
def test_too_few_points_are_refused(divide: Partition, n: int, k: int):
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
    return tuple(sorted(tuple(sorted(each)) for each in [*sets, left]))


@pytest.mark.parametrize("n", [200, FEW + 200, ROWS + 100])
def test_mdav_does_what_its_words_say_for_few_points_and_for_many(n: int):
    points = cloud(n, n, 4)
    assert mdav(points, 60) == plain_mdav(points, 60)


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 20), seeds)
def test_parts_have_as_many_sets_as_all_together(n: int, k: int, most: int, seed: int):
    k = min(k, n)
    points, parts = cloud(n, seed), list[int]()

    def divide(own: Tensor) -> Sets:
        parts.append(len(own))
        return mdav(own, k)

    sets = [*divided_in_parts(points, k, most, divide)]
    assert sorted(i for each in sets for i in each) == list(range(n))
    assert len(sets) == n // k
    assert all(k <= len(each) <= 2 * k - 1 for each in sets)
    assert max(parts) <= max(most, 2 * k)


def test_parts_are_nearly_as_tight_as_all_together():
    points = cloud(600, 0, 2)
    parts = mdav(points, 4, most=300)
    blind = public_random(600, 4, np.random.default_rng(0))
    whole = spread(points, mdav(points, 4))
    assert parts != mdav(points, 4)
    assert spread(points, parts) < 1.1 * whole
    assert spread(points, blind) > 2 * whole


def test_points_that_are_not_finite_fall_into_parts_too():
    points = cloud(40, 0)
    points[3] = torch.nan
    sets = [*divided_in_parts(points, 3, 8, lambda own: mdav(own, 3))]
    assert sorted(i for each in sets for i in each) == list(range(40))
