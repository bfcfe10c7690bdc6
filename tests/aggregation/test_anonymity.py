"""Updates that hide in sets: which sets, who speaks for them, and through which noise."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aggregation.hiding import hiding, sound
from covey import AggregationResult, ClientUpdate, Params, Streams, mean_per_cluster
from covey.aggregation.anonymity import anonymity_aggregator, noise_scale
from covey.base.events import AnonymitySetsFormed, ClusterWaited, RepresentativesPerturbed

PUBLIC = Streams(0).at("round", 3, "merge")

seeds = st.integers(0, 2**32 - 1)
partitions = st.sampled_from(["mdav", "kmeans", "public-random"])


@st.composite
def sizes(draw: st.DrawFn, most: int = 14) -> tuple[int, int]:
    n = draw(st.integers(1, most))
    return n, draw(st.integers(1, n))


def drawn(seed: int) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "layer.weight": torch.randn(2, 3, generator=draws, dtype=torch.float64),
        "layer.bias": torch.randn(3, generator=draws, dtype=torch.float64),
    }


def of(*values: float) -> Params:
    """A model of one coordinate or a few."""
    return {"w": torch.tensor(values, dtype=torch.float64)}


def updates_of(
    n: int, seed: int, cluster: int = 0, weights: Sequence[float] = ()
) -> list[ClientUpdate]:
    return [
        ClientUpdate(handle(i), cluster, drawn(seed + i), weight)
        for i, weight in enumerate(weights or [1.0] * n)
    ]


def handle(i: int) -> str:
    """Handles whose order is not the order in which the updates come."""
    return f"h-{i * 7 % 23:02d}-{i:02d}"


def hidden(secret: int | None) -> Streams:
    return replace(PUBLIC, secret=secret)


def formed(merged: AggregationResult) -> AnonymitySetsFormed:
    (event,) = merged.events
    assert isinstance(event, AnonymitySetsFormed)
    return event


def flat(model: Params) -> Tensor:
    return torch.cat([model[name].reshape(-1) for name in sorted(model)])


@given(sizes(), partitions, seeds)
def test_the_sets_divide_the_cohort_into_k_to_2k_minus_1(size, partition, seed):
    n, k = size
    merge = anonymity_aggregator(hiding(k, partition=partition))
    event = formed(merge((drawn(seed),), updates_of(n, seed), PUBLIC))
    assert sorted(h for each in event.sets for h in each) == sorted(map(handle, range(n)))
    assert all(k <= len(each) <= 2 * k - 1 for each in event.sets)
    assert list(event.sets) == sorted(tuple(sorted(each)) for each in event.sets)
    assert len(event.diameters) == len(event.sets) == n // k
    assert event.near == ()


@given(sizes(), partitions, seeds, seeds)
def test_the_record_says_nothing_of_who_spoke(size, partition, seed, secret):
    n, k = size
    merge = anonymity_aggregator(hiding(k, partition=partition))
    events = {
        formed(merge((drawn(seed),), updates_of(n, seed), hidden(each)))
        for each in (None, secret, secret + 1)
    }
    assert len(events) == 1


def test_who_speaks_is_drawn_from_the_hidden_stream():
    # 4 sets of 3: two secrets that are independent agree with probability 3^-4
    updates = updates_of(12, 0)
    merge = anonymity_aggregator(hiding())
    ends = {
        tuple(flat(merge((drawn(99),), updates, hidden(secret)).clusters[0]).tolist())
        for secret in range(20)
    }
    assert len(ends) > 10
    again = merge((drawn(99),), updates, hidden(7)).clusters[0]
    same = merge((drawn(99),), updates, hidden(7)).clusters[0]
    assert torch.equal(flat(again), flat(same))


def test_every_member_speaks_as_often_as_any_other():
    merge = anonymity_aggregator(hiding(4))
    updates = [ClientUpdate(str(i), 0, of(float(i)), 1.0) for i in range(4)]
    spoke = [
        int(merge((of(0.0),), updates, hidden(secret)).clusters[0]["w"]) for secret in range(240)
    ]
    for member in range(4):  # 240 / 4, with deviation sqrt(240 * 3 / 16) = 6.7
        assert abs(spoke.count(member) - 60) < 5 * 6.8


@given(
    st.integers(1, 3),
    st.lists(st.floats(0.125, 8), min_size=3, max_size=7),
    seeds,
    st.one_of(st.none(), seeds),
)
def test_without_noise_one_update_per_set_counts_for_all_of_it(k, shares, seed, secret):
    start, updates = drawn(seed), updates_of(len(shares), seed + 1, weights=shares)
    merged = anonymity_aggregator(hiding(k))((start,), updates, hidden(secret))
    by_handle = {each.handle: each for each in updates}
    total = sum(shares)
    sets = formed(merged).sets
    p = [sum(by_handle[h].weight for h in each) / total for each in sets]
    choices = [
        flat(start)
        + torch.stack(
            [p_c * flat(by_handle[h].update) for p_c, h in zip(p, speakers, strict=True)]
        ).sum(dim=0)
        for speakers in product(*sets)
    ]
    gaps = [float((flat(merged.clusters[0]) - each).abs().max()) for each in choices]
    assert min(gaps) < 1e-9


def test_with_equal_weights_a_set_counts_by_its_size():
    # sets {0, 1} near 0 and {2, 3, 4} near 100; whoever speaks, rounded to tens:
    #   2/5 * 0 + 3/5 * 100 = 60
    values = (0.0, 1.0, 100.0, 101.0, 102.0)
    updates = [ClientUpdate(str(i), 0, of(v), 1.0) for i, v in enumerate(values)]
    merged = anonymity_aggregator(hiding(2))((of(0.0),), updates, PUBLIC)
    assert formed(merged).sets == (("0", "1"), ("2", "3", "4"))
    assert formed(merged).diameters == (1.0, 2.0)
    assert 60 <= float(merged.clusters[0]["w"]) <= 60 + 0.4 + 1.2 + 1e-9


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.125, 8)), max_size=8), seeds)
def test_a_set_of_one_hides_nobody_and_gives_the_mean(choices, seed):
    models = tuple(drawn(seed + j) for j in range(3))
    updates = [
        ClientUpdate(handle(i), j, drawn(seed + 10 + i), w) for i, (j, w) in enumerate(choices)
    ]
    alone = anonymity_aggregator(hiding(1))
    merged = alone(models, updates, PUBLIC).clusters
    for one, other in zip(merged, mean_per_cluster(models, updates, PUBLIC).clusters, strict=True):
        assert torch.equal(flat(one), flat(other))


@given(sizes(), st.sampled_from(["mdav", "kmeans"]), seeds, st.integers(-50, 50))
def test_dividing_updates_or_models_is_the_same_in_l2(size, partition, seed, shift):
    n, k = size
    merge = anonymity_aggregator(hiding(k, partition=partition))
    zero = {name: torch.zeros_like(value) for name, value in drawn(0).items()}
    moved = {name: value + shift for name, value in drawn(seed).items()}
    updates = updates_of(n, seed + 1)
    as_updates = formed(merge((zero,), updates, PUBLIC))
    as_models = formed(merge((moved,), updates, PUBLIC))
    assert as_models.sets == as_updates.sets
    assert as_models.diameters == pytest.approx(as_updates.diameters)


def test_cosine_compares_the_models_and_not_the_updates():
    # from (0, 0): angles 0, 0, 90, 90 degrees. From (0, 10): all four models look the
    # same way but for (-9, 10) and (9, 10), so other sets form
    updates = [
        ClientUpdate(str(i), 0, of(x, y), 1.0)
        for i, (x, y) in enumerate([(9.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 9.0)])
    ]
    merge = anonymity_aggregator(hiding(2, distance="cosine"))
    assert formed(merge((of(0.0, 0.0),), updates, PUBLIC)).sets == (("0", "1"), ("2", "3"))
    # the diameter is the updates' L2 distance, whatever formed the sets
    assert formed(merge((of(0.0, 0.0),), updates, PUBLIC)).diameters == (8.0, 8.0)
    # from (-5, 0) the models are (4, 0), (-4, 0), (-5, 1), (-5, 9): 0 has nobody near
    # it and takes 3, the least far
    assert formed(merge((of(-5.0, 0.0),), updates, PUBLIC)).sets == (("0", "3"), ("1", "2"))


@given(st.integers(2, 5), seeds)
def test_a_cluster_of_fewer_than_k_waits(k, seed):
    models = (drawn(seed), drawn(seed + 1), drawn(seed + 2))
    few = updates_of(k - 1, seed + 3, cluster=2)
    enough = [replace(each, handle=f"x-{each.handle}") for each in updates_of(k, seed)]
    merged = anonymity_aggregator(hiding(k))(models, [*few, *enough], PUBLIC)
    sets, waited = merged.events
    assert isinstance(sets, AnonymitySetsFormed)
    assert sets.cluster == 0
    assert waited == ClusterWaited(2, k - 1, k)
    moved = [
        not torch.equal(flat(a), flat(b)) for a, b in zip(models, merged.clusters, strict=True)
    ]
    assert moved == [True, False, False]


def test_nobody_at_all_moves_nothing():
    merged = anonymity_aggregator(hiding())((drawn(0),), [], PUBLIC)
    assert merged.events == ()
    assert torch.equal(flat(merged.clusters[0]), flat(drawn(0)))


@pytest.mark.parametrize("k", [1, 3])
def test_clusters_draw_apart(k):
    # the same updates in two clusters: equal sets, but not the same members throughout
    merge = anonymity_aggregator(hiding(k))
    start = drawn(50)
    twice = [each for j in (0, 1) for each in updates_of(12, 0, cluster=j)]
    ends = [merge((start, start), twice, hidden(secret)).clusters for secret in range(8)]
    same = [torch.equal(flat(one), flat(other)) for one, other in ends]
    assert all(same) == (k == 1)


def test_the_papers_noise_has_the_deviation_sigma_times_radius():
    size, sigma, radius = 100_000, 0.3, 2.0
    start, update = of(*[0.0] * size), of(*[1.0] * size)
    way = hiding(2, noise_scale("paper", "l2", sigma * radius))
    same = [ClientUpdate(str(i), 0, update, 1.0) for i in range(2)]
    merged = anonymity_aggregator(way)((start,), same, PUBLIC).clusters[0]["w"]
    # 5 standard errors of a deviation are 5 / sqrt(2 * 1e5) = 1.1%; the draw is fixed
    assert float(merged.std()) == pytest.approx(sigma * radius, rel=0.01)
    assert float(merged.mean()) == pytest.approx(1.0, abs=0.01)
    other = anonymity_aggregator(way)((start,), same, hidden(1)).clusters[0]["w"]
    correlation = torch.corrcoef(torch.stack([merged, other]))[0, 1]
    assert abs(float(correlation)) < 0.02


def test_the_released_noise_is_the_largest_mean_distance_of_rows():
    # rows of the weight: A (0, 0), (0, 0); B (3, 4), (0, 0); C (3, 4), (6, 8)
    # of the bias, each coordinate is a row: A 0, 0; B 0, 2; C 0, 0
    # A-B: (5 + 0 + 0 + 2) / 4 = 1.75;  A-C: (5 + 10 + 0 + 0) / 4 = 3.75
    # B-C: (0 + 10 + 0 + 2) / 4 = 3
    def model(rows: list[list[float]], bias: list[float]) -> Params:
        return {"weight": torch.tensor(rows), "bias": torch.tensor(bias)}

    models = [
        model([[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]),
        model([[3.0, 4.0], [0.0, 0.0]], [0.0, 2.0]),
        model([[3.0, 4.0], [6.0, 8.0]], [0.0, 0.0]),
    ]
    released = noise_scale("released", "l2", 99.0)
    assert released(models, (0, 1)) == pytest.approx(1.75)
    assert released(models, (1, 2)) == pytest.approx(3.0)
    assert released(models, (0, 1, 2)) == pytest.approx(3.75)
    assert released(models, (1,)) == 0.0


def test_the_released_noise_of_cosine_sets_is_the_largest_angle():
    models = [of(1.0, 0.0), of(5.0, 5.0), of(0.0, 2.0)]
    released = noise_scale("released", "cosine", 99.0)
    assert released(models, (0, 1)) == pytest.approx(1 - 0.5**0.5)
    assert released(models, (0, 1, 2)) == pytest.approx(1.0)


def test_a_parameter_without_axes_gets_its_noise_too():
    start = {"temperature": torch.tensor(1.0)}
    way = hiding(2, noise=noise_scale("paper", "l2", 0.5))
    same = [ClientUpdate(str(i), 0, {"temperature": torch.tensor(0.0)}, 1.0) for i in range(2)]
    (moved,) = anonymity_aggregator(way)((start,), same, PUBLIC).clusters
    assert moved["temperature"].shape == ()
    assert moved["temperature"].dtype == torch.float32
    assert float(moved["temperature"]) != 1.0


def normalised(value: float, statistic: float) -> Params:
    """A model with BatchNorm's buffers."""
    return {
        "norm.weight": torch.tensor([value]),
        "norm.running_mean": torch.tensor([statistic]),
        "norm.running_var": torch.tensor([statistic]),
        "norm.num_batches_tracked": torch.tensor(3),
    }


def test_the_statistics_of_batches_get_no_noise_and_are_no_coordinates():
    # by the weight {A, B} and {C, D}; by the statistics {A, C} and {B, D}
    values = {"A": (0.0, 0.0), "B": (1.0, 500.0), "C": (50.0, 1.0), "D": (51.0, 501.0)}
    updates = [ClientUpdate(h, 0, normalised(*pair), 1.0) for h, pair in values.items()]
    start = normalised(0.0, 0.0)
    way = hiding(2, max_distance=5.0, noise=noise_scale("paper", "l2", 1e3))
    merged = anonymity_aggregator(way)((start,), updates, PUBLIC)
    assert formed(merged) == AnonymitySetsFormed(
        cluster=0,
        sets=(("A", "B"), ("C", "D")),
        diameters=(1.0, 1.0),
        near=((("B",), ("A",)), (("D",), ("C",))),
    )
    (moved,) = merged.clusters
    possible = [(s + t) / 2 for s in (0.0, 500.0) for t in (1.0, 501.0)]
    assert float(moved["norm.running_mean"]) in possible
    assert float(moved["norm.running_var"]) in possible
    assert int(moved["norm.num_batches_tracked"]) == 6
    assert abs(float(moved["norm.weight"]) - 25) > 5
    still = noise_scale("released", "l2", 0.0)
    assert still([normalised(0.0, 0.0), normalised(0.0, 9.0)], (0, 1)) == 0.0


def test_who_is_near_is_told_member_by_member():
    # on a line: 0, 3, 7 and 100, 101, 109; near is up to 4
    values = {"c": 0.0, "b": 3.0, "a": 7.0, "f": 100.0, "e": 101.0, "d": 109.0}
    updates = [ClientUpdate(h, 0, of(v), 1.0) for h, v in values.items()]
    event = formed(anonymity_aggregator(hiding(max_distance=4.0))((of(0.0),), updates, PUBLIC))
    assert event.sets == (("a", "b", "c"), ("d", "e", "f"))
    assert event.diameters == (7.0, 9.0)
    assert event.near == ((("b",), ("a", "c"), ("b",)), ((), ("f",), ("e",)))


def test_a_client_that_diverged_leaves_no_diameter():
    updates = [ClientUpdate(str(i), 0, of(v), 1.0) for i, v in enumerate((0.0, torch.nan))]
    merge = anonymity_aggregator(hiding(2, max_distance=1.0))
    event = formed(merge((of(0.0),), updates, PUBLIC))
    assert event.diameters == (None,)
    assert event.near == (((), ()),)


@given(partitions, st.sampled_from(["none", "released", "paper"]), seeds)
def test_names_dtypes_and_the_callers_tensors_stay_as_they_are(partition, noise, seed):
    way = hiding(2, noise_scale(noise, "l2", 0.5), partition=partition)
    start, updates = drawn(seed), updates_of(5, seed + 1)
    start = {name: value.float() for name, value in start.items()}
    updates = [
        replace(each, update={n: v.float() for n, v in each.update.items()}) for each in updates
    ]
    before = [flat(each.update).clone() for each in updates]
    (moved,) = anonymity_aggregator(way)((start,), updates, PUBLIC).clusters
    assert {n: (v.shape, v.dtype) for n, v in moved.items()} == {
        n: (v.shape, v.dtype) for n, v in start.items()
    }
    for each, kept in zip(updates, before, strict=True):
        assert torch.equal(flat(each.update), kept)


@given(sizes(), seeds, seeds, st.one_of(st.none(), seeds))
def test_sound_sets_cover_the_cohort_and_look_at_no_data(size, one, other, secret):
    n, k = size
    merge = anonymity_aggregator(sound(k))
    told = [
        merge((drawn(seed),), updates_of(n, seed, weights=weights), streams).events
        for seed, weights, streams in (
            (one, [1.0] * n, PUBLIC),
            (other, [float(i + 1) for i in range(n)], hidden(secret)),
        )
    ]
    assert told[0] == told[1]
    formed, perturbed = told[0]
    assert isinstance(formed, AnonymitySetsFormed)
    assert sorted(h for each in formed.sets for h in each) == sorted(map(handle, range(n)))
    assert formed.diameters == (None,) * (n // k)
    assert formed.near == ()
    sized = tuple(map(len, formed.sets))
    assert perturbed == RepresentativesPerturbed(0, sized, 1.0, 1.0)


@given(sizes(), seeds, st.floats(0.01, 10), st.floats(0.01, 1000))
def test_sound_representatives_come_from_the_ball(size, seed, radius, length):
    n, k = size
    updates = [
        replace(each, update={m: v * length for m, v in each.update.items()})
        for each in updates_of(n, seed)
    ]
    zero = {name: torch.zeros_like(value) for name, value in drawn(0).items()}
    merged = anonymity_aggregator(sound(k, radius, z=0.0))((zero,), updates, PUBLIC)
    # a mean of points in a ball is in it
    assert float(flat(merged.clusters[0]).norm()) <= radius * (1 + 1e-6)


def test_sound_by_hand():
    # radius 5: (30, 40) becomes (3, 4), (0, 1) and (0, 2) stay; sets of 1, hardly noise
    updates = [
        ClientUpdate(str(i), 0, of(x, y), weight)
        for i, (x, y, weight) in enumerate([(30, 40, 1.0), (0, 1, 7.0), (0, 2, 9.0)])
    ]
    merged = anonymity_aggregator(sound(1, 5.0, 1e-9))((of(1.0, 1.0),), updates, PUBLIC)
    torch.testing.assert_close(merged.clusters[0], of(1 + 3 / 3, 1 + 7 / 3))


def test_sound_noise_has_the_deviation_2_z_delta():
    size, z, radius = 100_000, 0.7, 1.5
    start = of(*[0.0] * size)
    same = [ClientUpdate(str(i), 0, start, 1.0) for i in range(5)]
    merge = anonymity_aggregator(sound(2, radius, z))
    merged = merge((start,), same, PUBLIC).clusters[0]["w"]
    # two sets, of 3 and 2: sqrt(3^2 + 2^2) / 5 of one's deviation; known to 0.2%
    std = 2 * z * radius * 13**0.5 / 5
    assert float(merged.std()) == pytest.approx(std, rel=0.01)
    assert float(merged.mean()) == pytest.approx(0.0, abs=5 * std / size**0.5)
    other = merge((start,), same, hidden(1)).clusters[0]["w"]
    correlation = torch.corrcoef(torch.stack([merged, other]))[0, 1]
    assert abs(float(correlation)) < 0.02


def test_a_sound_set_s_secret_noise_ends_on_one_grid():
    start = {"w": torch.zeros(1000)}

    def off_grid(value: float, streams: Streams) -> int:
        update = {"w": torch.full((1000,), value)}
        same = [ClientUpdate(str(i), 0, update, 1.0) for i in range(2)]
        merged = anonymity_aggregator(sound(2))((start,), same, streams).clusters[0]
        return int((merged["w"] * 8 % 1 != 0).sum())  # of deviation 2: 8 steps are 1

    assert off_grid(0.0, hidden(7)) == off_grid(1 / 99, hidden(7)) == 0
    assert off_grid(0.0, PUBLIC) > 900


def test_a_sound_cluster_of_fewer_than_k_waits_and_tells_nothing_else():
    merged = anonymity_aggregator(sound(4))((drawn(0),), updates_of(3, 1), PUBLIC)
    assert merged.events == (ClusterWaited(0, 3, 4),)
    assert torch.equal(flat(merged.clusters[0]), flat(drawn(0)))


def test_a_client_that_diverged_is_as_any_other_in_a_sound_merge():
    updates = [ClientUpdate(str(i), 0, of(v), 1.0) for i, v in enumerate((0.0, torch.nan))]
    for secret in range(9):
        merged = anonymity_aggregator(sound(2))((of(0.0),), updates, hidden(secret))
        assert bool(merged.clusters[0]["w"].isfinite())
