"""Updates that hide in sets: which sets, who speaks for them, and through which noise."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch import Tensor

from aggregation.hiding import hidden_by, hiding, sound
from covey import AggregationResult, ClientUpdate, Params, Streams
from covey.aggregation.anonymity import AnonymitySets, noise_scale
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
    merge = hidden_by(hiding(k, partition=partition))
    event = formed(merge((drawn(seed),), updates_of(n, seed), PUBLIC))
    assert sorted(h for members in event.sets for h in members) == sorted(map(handle, range(n)))
    assert all(k <= len(members) <= 2 * k - 1 for members in event.sets)
    assert list(event.sets) == sorted(tuple(sorted(members)) for members in event.sets)
    assert len(event.diameters) == len(event.sets) == n // k
    assert event.near == ()


def test_who_speaks_is_drawn_from_the_hidden_stream():
    # 4 sets of 3: two secrets that are independent agree with probability 3^-4
    updates = updates_of(12, 0)
    merge = hidden_by(hiding())

    def end(secret: int) -> tuple[float, ...]:
        return tuple(flat(merge((drawn(99),), updates, hidden(secret)).clusters[0]).tolist())

    assert len({end(secret) for secret in range(20)}) > 10
    assert end(7) == end(7)


def test_every_member_speaks_as_often_as_any_other():
    merge = hidden_by(hiding(4))
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
    merged = hidden_by(hiding(k))((start,), updates, hidden(secret))
    by_handle = {update.handle: update for update in updates}
    total = sum(shares)
    sets = formed(merged).sets
    p = [sum(by_handle[h].weight for h in members) / total for members in sets]
    moved = flat(merged.clusters[0]) - flat(start)
    gaps = [
        moved - sum(p_c * flat(by_handle[h].update) for p_c, h in zip(p, speakers, strict=True))
        for speakers in product(*sets)
    ]
    assert min(float(gap.abs().max()) for gap in gaps) < 1e-9


@given(st.integers(2, 5), seeds)
def test_a_cluster_of_fewer_than_k_waits(k, seed):
    models = (drawn(seed), drawn(seed + 1), drawn(seed + 2))
    few = updates_of(k - 1, seed + 3, cluster=2)
    enough = [replace(update, handle=f"x-{update.handle}") for update in updates_of(k, seed)]
    merged = hidden_by(hiding(k))(models, [*few, *enough], PUBLIC)
    sets, waited = merged.events
    assert isinstance(sets, AnonymitySetsFormed)
    assert sets.cluster == 0
    assert waited == ClusterWaited(2, k - 1, k)
    moved = [
        not torch.equal(flat(a), flat(b)) for a, b in zip(models, merged.clusters, strict=True)
    ]
    assert moved == [True, False, False]


def deviation(
    merge: Callable[..., AggregationResult], clients: int, *, secret: int | None = None
) -> Tensor:
    """What equal updates of 0, in 100,000 coordinates, become of 0: known to 0.2%."""
    start = of(*[0.0] * 100_000)
    same = [ClientUpdate(str(i), 0, start, 1.0) for i in range(clients)]
    return merge((start,), same, hidden(secret)).clusters[0]["w"]


def assert_independent(one: Tensor, other: Tensor) -> None:
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.02


def test_the_papers_noise_has_the_deviation_sigma_times_radius():
    merge = hidden_by(hiding(2, noise_scale("paper", "l2", 0.3 * 2.0)))
    noise = deviation(merge, 2)
    assert float(noise.std()) == pytest.approx(0.6, rel=0.01)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.01)
    assert_independent(noise, deviation(merge, 2, secret=1))


@pytest.mark.parametrize("secret", [None, 1])
def test_laplace_noise_has_the_deviation_of_gaussian_noise_and_its_own_law(secret):
    merge = hidden_by(hiding(2, noise_scale("paper", "l2", 0.6), noise_shape="laplace"))
    noise = deviation(merge, 2, secret=secret)
    # of a Laplace variable the fourth moment is 6 std^4: the variance is known to 0.71%
    assert float(noise.std()) == pytest.approx(0.6, rel=0.02)
    rounded = 0.0 if secret is None else 1 / 32  # to the grid, of 16 steps or more per std
    distance = kstest(noise.numpy() / (0.6 / 2**0.5), "laplace").statistic
    assert distance < 2 / 100_000**0.5 + rounded
    gaussian = hidden_by(hiding(2, noise_scale("paper", "l2", 0.6)))
    normal = deviation(gaussian, 2, secret=secret).numpy()
    assert kstest(normal / (0.6 / 2**0.5), "laplace").statistic > 0.05


def test_how_well_laplace_noise_hides_a_representative_is_unknown():
    settings = {"noise": "paper", "radius": 0.3}
    assert AnonymitySets(**settings).anonymity().noise == 0.3
    assert AnonymitySets(**settings, noise_shape="laplace").anonymity().noise is None


def test_the_released_noise_is_the_largest_mean_distance_of_rows():
    # rows of the weight: A (0, 0), (0, 0); B (3, 4), (0, 0); C (3, 4), (6, 8)
    # of the bias, each coordinate is a row: A 0, 0; B 0, 2; C 0, 0
    # A-B: (5 + 0 + 0 + 2) / 4 = 1.75;  A-C: (5 + 10 + 0 + 0) / 4 = 3.75
    # B-C: (0 + 10 + 0 + 2) / 4 = 3
    rows = ([[0, 0], [0, 0]], [[3, 4], [0, 0]], [[3, 4], [6, 8]])
    models = [
        {"weight": torch.tensor(w).float(), "bias": torch.tensor(b).float()}
        for w, b in zip(rows, ([0, 0], [0, 2], [0, 0]), strict=True)
    ]
    released = noise_scale("released", "l2", 99.0)
    for members, expected in (((0, 1), 1.75), ((1, 2), 3.0), ((0, 1, 2), 3.75), ((1,), 0.0)):
        assert released(models, members) == pytest.approx(expected)
    angles = [of(1.0, 0.0), of(5.0, 5.0), of(0.0, 2.0)]
    released = noise_scale("released", "cosine", 99.0)
    assert released(angles, (0, 1)) == pytest.approx(1 - 0.5**0.5)
    assert released(angles, (0, 1, 2)) == pytest.approx(1.0)


def normalised(value: float, statistic: float) -> Params:
    """A model with BatchNorm's buffers."""
    return {
        "norm.weight": torch.tensor([value]),
        "norm.running_mean": torch.tensor([statistic]),
        "norm.num_batches_tracked": torch.tensor(3),
    }


def test_the_statistics_of_batches_get_no_noise_and_are_no_coordinates():
    # by the weight {A, B} and {C, D}; by the statistics {A, C} and {B, D}
    values = {"A": (0.0, 0.0), "B": (1.0, 500.0), "C": (50.0, 1.0), "D": (51.0, 501.0)}
    updates = [ClientUpdate(h, 0, normalised(*pair), 1.0) for h, pair in values.items()]
    way = hiding(2, max_distance=5.0, noise=noise_scale("paper", "l2", 1e3))
    merged = hidden_by(way)((normalised(0.0, 0.0),), updates, PUBLIC)
    near = ((("B",), ("A",)), (("D",), ("C",)))
    expected = AnonymitySetsFormed(0, (("A", "B"), ("C", "D")), (1.0, 1.0), near)
    assert formed(merged) == expected
    (moved,) = merged.clusters
    possible = [(s + t) / 2 for s in (0.0, 500.0) for t in (1.0, 501.0)]
    assert float(moved["norm.running_mean"]) in possible
    assert int(moved["norm.num_batches_tracked"]) == 6
    assert abs(float(moved["norm.weight"]) - 25) > 5


@pytest.mark.parametrize("partition", ["mdav", "public-random"])
def test_who_is_near_goes_by_the_distance_that_forms_the_sets(partition):
    # models A (1, 0), B (10, 0), C (1, 1): the angle of A and B is 0, and C is 45 degrees off
    updates = {"A": (0.0, 0.0), "B": (9.0, 0.0), "C": (0.0, 1.0)}
    sent = [ClientUpdate(h, 0, of(*update), 1.0) for h, update in updates.items()]
    for distance, most, near in (
        ("l2", 1.0, (("C",), (), ("A",))),
        ("cosine", 0.25, (("B",), ("A",), ())),
        ("cosine", 0.3, (("B", "C"), ("A", "C"), ("A", "B"))),
    ):
        way = hiding(3, partition=partition, distance=distance, max_distance=most)
        event = formed(hidden_by(way)((of(1.0, 0.0),), sent, PUBLIC))
        assert (event.near, event.distance) == ((near,), distance)
        assert event.diameters == pytest.approx((82**0.5,))  # L2, between updates


@given(sizes(), seeds, seeds, st.one_of(st.none(), seeds))
def test_sound_sets_cover_the_cohort_and_look_at_no_data(size, one, other, secret):
    n, k = size
    merge = hidden_by(sound(k))
    events = [
        merge((drawn(seed),), updates_of(n, seed, weights=weights), streams).events
        for seed, weights, streams in (
            (one, [1.0] * n, PUBLIC),
            (other, [float(i + 1) for i in range(n)], hidden(secret)),
        )
    ]
    assert events[0] == events[1]
    formed, perturbed = events[0]
    assert isinstance(formed, AnonymitySetsFormed)
    assert sorted(h for members in formed.sets for h in members) == sorted(map(handle, range(n)))
    assert formed.diameters == (None,) * (n // k)
    assert formed.near == ()
    sized = tuple(map(len, formed.sets))
    assert perturbed == RepresentativesPerturbed(0, sized, 1.0, 1.0)


def test_sound_noise_has_the_deviation_2_z_delta():
    merge = hidden_by(sound(2, 1.5, 0.7))
    noise = deviation(merge, 5)
    # two sets, of 3 and 2: sqrt(3^2 + 2^2) / 5 of one's deviation
    std = 2 * 0.7 * 1.5 * 13**0.5 / 5
    assert float(noise.std()) == pytest.approx(std, rel=0.01)
    assert float(noise.mean()) == pytest.approx(0.0, abs=5 * std / 100_000**0.5)
    assert_independent(noise, deviation(merge, 5, secret=1))


def test_a_sound_set_s_secret_noise_ends_on_one_grid():
    start = {"w": torch.zeros(1000)}

    def off_grid(value: float, streams: Streams) -> int:
        update = {"w": torch.full((1000,), value)}
        same = [ClientUpdate(str(i), 0, update, 1.0) for i in range(2)]
        merged = hidden_by(sound(2))((start,), same, streams).clusters[0]
        return int((merged["w"] * 8 % 1 != 0).sum())  # of deviation 2: 8 steps are 1

    assert off_grid(0.0, hidden(7)) == off_grid(1 / 99, hidden(7)) == 0
    assert off_grid(0.0, PUBLIC) > 900
