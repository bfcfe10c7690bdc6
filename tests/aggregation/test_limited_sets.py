"""Sets within Delta, and sets of updates that pass by one by one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from aggregation.hiding import hidden_by, hiding, sound
from covey import AggregationResult, ClientUpdate, Params, Streams
from covey.aggregation.anonymity import Hiding, HidingRound, noise_scale
from covey.aggregation.partition import (
    balanced_kmeans,
    diameters,
    mdav,
    neighbours,
    sets_within,
    sketch_error,
    unit_rows,
)
from covey.base.events import (
    AnonymitySetsFormed,
    ClientsOutsideSets,
    ClusterWaited,
    DistancesSketched,
)
from covey.base.params import model_hash
from covey.leaving.plan import AnswerRules, options
from covey.ledger.participation import participation_of

PUBLIC = Streams(0).at("round", 3, "merge")
distances = st.sampled_from(["l2", "cosine"])


@st.composite
def divided(draw: st.DrawFn):
    """Draw points, a way to measure, k, and sets of the points by MDAV or k-means."""
    n = draw(st.integers(1, 20))
    k, by = draw(st.integers(1, n)), draw(distances)
    draws = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    points = torch.randn(n, 3, generator=draws) + torch.randint(3, (n, 1), generator=draws)
    seen = unit_rows(points) if by == "cosine" else points
    if draw(st.booleans()):
        return points, by, k, mdav(seen, k)
    return points, by, k, balanced_kmeans(seen, k, PUBLIC.generator())


@given(divided(), st.floats(0, 3))
def test_sets_have_k_to_2k_minus_1_points_within_delta(drawn, most):
    points, by, k, sets = drawn
    limited = sets_within(points, sets, k, most, by)
    members = [i for group in limited for i in group]
    assert len(members) == len(set(members))
    assert all(k <= len(group) <= 2 * k - 1 for group in limited)
    assert all(width <= most for width in diameters(points, limited, by))
    assert {group for group in sets if diameters(points, (group,), by)[0] <= most} <= {
        group for group in sets if any({*group} <= {*wider} for wider in limited)
    }


@given(divided())
def test_without_a_limit_the_sets_are_those_of_the_partition(drawn):
    points, by, k, sets = drawn
    assert sets_within(points, sets, k, 1e9, by) == sets


@given(divided(), st.floats(0, 3))
def test_who_is_in_no_set_has_fewer_than_k_minus_1_of_these_near(drawn, most):
    points, by, k, sets = drawn
    assume(k > 1)
    limited = sets_within(points, sets, k, most, by)
    outside = tuple(sorted({*range(len(points))} - {i for group in limited for i in group}))
    if outside:
        half = most / 2 if by == "l2" else most / 4
        (near,) = neighbours(points, (outside,), half * (1 - 1e-6), by)
        assert all(len(group) < k - 1 for group in near)


def test_sets_within_a_distance_by_hand():
    # MDAV by threes: 20 is furthest from the mean and takes 9 and 3; the rest is one set
    points = torch.tensor([[0.0], [1.0], [2.0], [9.0], [20.0], [3.0], [2.5]])
    sets = mdav(points, 3)
    assert sets == ((0, 1, 2, 6), (3, 4, 5))
    # 0, 1, 2, 2.5 stay, and 3 joins them: 9 and 20 are too far
    assert sets_within(points, sets, 3, 3.0, "l2") == ((0, 1, 2, 5, 6),)
    # no set stays: 2.5 has two others within 0.5, which are within 1 of each other
    assert sets_within(points, sets, 3, 1.0, "l2") == ((2, 5, 6),)
    assert sets_within(points, sets, 3, 0.5, "l2") == ()


def test_points_that_are_equal_or_not_finite():
    same = torch.tensor([[1.0], [1.0], [1.0], [1.0], [float("nan")], [50.0]])
    assert sets_within(same, ((0, 4), (1, 2, 5), (3,)), 2, 0.0, "l2") == ((0, 1), (2, 3))


def test_a_full_set_takes_nobody_more():
    points = torch.tensor([[0.0], [0.0], [0.0], [0.0], [50.0]])
    assert sets_within(points, ((0, 1, 2), (3, 4)), 2, 1.0, "l2") == ((0, 1, 2),)


def merged(most: float) -> AggregationResult:
    values = {"A": 0.0, "B": 1.0, "C": 2.0, "D": 9.0, "E": 30.0}
    sent = [ClientUpdate(h, 0, {"w": torch.tensor([v])}, 1.0) for h, v in values.items()]
    way = hiding(2, max_distance=most, limit_sets=True)
    return hidden_by(way)(({"w": torch.tensor([100.0])},), sent, PUBLIC)


def test_clients_in_no_set_move_no_model_and_are_recorded():
    outside, formed = merged(2.0).events
    assert outside == ClientsOutsideSets(0, ("D", "E"))
    assert isinstance(formed, AnonymitySetsFormed)
    assert formed.sets == (("A", "B", "C"),)
    assert formed.near == ((("B", "C"), ("A", "C"), ("A", "B")),)
    assert float(merged(2.0).clusters[0]["w"]) in (100.0, 101.0, 102.0)


def test_a_cluster_without_a_set_waits():
    result = merged(0.5)
    handles = ("A", "B", "C", "D", "E")
    assert result.events == (ClientsOutsideSets(0, handles), ClusterWaited(0, 5, 2))
    assert float(result.clusters[0]["w"]) == 100.0


@pytest.mark.parametrize("distance", ["l2", "cosine"])
@pytest.mark.parametrize("partition", ["mdav", "kmeans"])
def test_a_limit_that_all_keep_changes_nothing(partition, distance):
    draws = torch.Generator().manual_seed(0)
    sent = [
        ClientUpdate(f"h-{i}", 0, {"w": torch.randn(4, generator=draws)}, 1.0) for i in range(11)
    ]
    results = [
        hidden_by(
            hiding(3, max_distance=1e3, limit_sets=limited, partition=partition, distance=distance)
        )(({"w": torch.zeros(4)},), sent, PUBLIC)
        for limited in (False, True)
    ]
    assert results[0].events == results[1].events
    assert torch.equal(results[0].clusters[0]["w"], results[1].clusters[0]["w"])


seeds = st.integers(0, 2**32 - 1)
STREAMS = Streams(0).at("round", 2, "merge")
QUARTER = noise_scale("paper", "l2", 0.25)
SETS = hiding(3, QUARTER)


def drawn(seed: int) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "a.weight": torch.randn(4, 5, generator=draws),
        "a.bias": torch.randn(5, generator=draws),
    }


def updates_of(n: int, seed: int) -> list[ClientUpdate]:
    return [
        ClientUpdate(f"h-{i * 7 % 23:02d}-{i:02d}", i % 2, drawn(seed + i), 1.0 + i)
        for i in range(n)
    ]


def merged_passing(config: Hiding, updates: Sequence[ClientUpdate]):
    """Return what comes of updates that are held, and of the same as they pass by."""
    models = (drawn(10**6), drawn(10**6 + 1))
    streamed = replace(config, window=0.0)
    held, streamed_result = (
        hidden_by(hiding_config)(models, updates, STREAMS) for hiding_config in (config, streamed)
    )
    hiding_round = HidingRound(models, STREAMS, hiding=streamed)
    for update in updates:
        hiding_round.add(update)
    return held, streamed_result, hiding_round.result().again


def formed(result: AggregationResult) -> list[AnonymitySetsFormed]:
    return [event for event in result.events if isinstance(event, AnonymitySetsFormed)]


CONFIGS = {
    "mdav": SETS,
    "cosine": hiding(3, QUARTER, distance="cosine"),
    "near": hiding(3, QUARTER, max_distance=7.0),
    "kmeans": hiding(3, QUARTER, partition="kmeans"),
    "sound": sound(3, 1.0, 0.5),
}


@pytest.mark.parametrize("name", CONFIGS)
@given(st.integers(0, 30), seeds)
def test_a_stream_gives_the_same_models_and_sets_to_the_bit(name, n, seed):
    # 25 coordinates are fewer than a sketch has numbers: it changes no distance
    held, result, again = merged_passing(CONFIGS[name], updates_of(n, seed % 10**6))
    assert model_hash(held.clusters) == model_hash(result.clusters)
    assert [e.sets for e in formed(held)] == [e.sets for e in formed(result)]
    assert [e.near for e in formed(held)] == [e.near for e in formed(result)]
    assert len(again) == sum(len(e.sets) for e in formed(result))


@pytest.mark.parametrize(
    "settings",
    [{"distance": "cosine", "max_distance": 0.5}, {"max_distance": 7.0, "limit_sets": True}],
)
@given(st.integers(3, 30), seeds)
def test_angles_and_diameters_that_are_limited_are_never_estimated(settings, n, seed):
    limited = hiding(3, QUARTER, **settings)
    held, result, again = merged_passing(limited, updates_of(n, seed % 10**6))
    assert model_hash(held.clusters) == model_hash(result.clusters)
    assert held.events == result.events
    assert again == ()


def passing(config: Hiding, *updates: Tensor, secret: int | None = None) -> AggregationResult:
    sent = [ClientUpdate(f"h-{i}", 0, {"w": update}, 1.0) for i, update in enumerate(updates)]
    start = ({"w": torch.zeros(2**13)},)
    passing_by = hidden_by(replace(config, window=0.0))
    return passing_by(start, sent, replace(STREAMS, secret=secret))


@pytest.mark.parametrize(("share", "near"), [(0.95, False), (0.5, True)])
def test_who_may_be_too_far_is_near_nobody(share, near):
    """Estimates of distances below the largest that counts are right on average only."""
    distant = torch.zeros(2, 2**13)
    distant[1, 0] = share  # and so is its estimate: one coordinate meets no other
    (event,) = formed(passing(hiding(2, QUARTER, max_distance=1.0), *distant))
    assert event.near == ((("h-1",), ("h-0",)) if near else ((), ()),)


def test_sketches_are_drawn_where_nobody_knows_them_before():
    wide = torch.randn(2, 2**13, generator=torch.Generator().manual_seed(0))
    one, other = (
        [e.diameters for e in result.events if isinstance(e, DistancesSketched)]
        for result in (passing(hiding(2, QUARTER), *wide, secret=secret) for secret in (1, 2))
    )
    assert one != other


def test_what_is_estimated_is_recorded_as_an_estimate():
    held, result, _ = merged_passing(SETS, updates_of(12, 0))
    sketches = [event for event in result.events if isinstance(event, DistancesSketched)]
    assert [e.cluster for e in sketches] == [0, 1]
    for exact, without, estimates in zip(formed(held), formed(result), sketches, strict=True):
        assert set(without.diameters) == {None}
        assert estimates.diameters == pytest.approx(exact.diameters, rel=1e-5)
        assert estimates.standard_error == sketch_error(estimates.numbers)
    sound = merged_passing(CONFIGS["sound"], updates_of(12, 0))[1]
    (one, other) = (e for e in sound.events if isinstance(e, DistancesSketched))
    assert {*one.diameters, *other.diameters} == {None}


K, X, ROUNDS = 4, 3, 12
VICTIM, SYBILS = "victim", ("sybil-0", "sybil-1", "sybil-2")
HONEST = tuple(f"honest-{i}" for i in range(8))
RULES = AnswerRules(X, stored_updates=False, restorable=(0,), next_round=ROUNDS)


def updates(round_index: int) -> list[ClientUpdate]:
    """Honest updates point anywhere; those of Sybils are near what the victim sends."""
    draws = np.random.default_rng(round_index)
    sent = {name: draws.normal(size=20) for name in (VICTIM, *HONEST)}
    sent[VICTIM] += 3  # few are like it, and whoever wants to be near it knows so
    near = {name: sent[VICTIM] + 0.01 * draws.normal(size=20) for name in SYBILS}
    return [
        ClientUpdate(name, 0, {"w": torch.tensor(update)}, 1.0)
        for name, update in sorted({**sent, **near}.items())
    ]


def test_a_set_can_be_one_operators_and_is_denied_all_the_same():
    # the limit that docs/concepts/threat-model.md names: sizes count keys
    merge = hidden_by(hiding(K))
    start = ({"w": torch.zeros(20, dtype=torch.float64)},)
    rounds = [merge(start, updates(t), Streams(1).at("round", t)).events for t in range(ROUNDS)]
    known = participation_of((t, event) for t, events in enumerate(rounds) for event in events)
    assert [held.members - {VICTIM} for held in known.sets_of(VICTIM)] == [set(SYBILS)] * ROUNDS
    assert options(known, VICTIM, RULES)[0].possible
