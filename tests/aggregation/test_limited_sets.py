"""Sets within Delta: which there are, who is in none, and what the aggregation makes of these."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from aggregation.hiding import hidden_by, hiding
from covey import AggregationResult, ClientUpdate, Streams
from covey.aggregation.limited_sets import sets_within
from covey.aggregation.partition import balanced_kmeans, diameters, mdav, neighbours, unit_rows
from covey.base.events import AnonymitySetsFormed, ClientsOutsideSets, ClusterWaited

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
    found = sets_within(points, sets, k, most, by)
    members = [i for each in found for i in each]
    assert len(members) == len(set(members))
    assert all(k <= len(each) <= 2 * k - 1 for each in found)
    assert all(width <= most for width in diameters(points, found, by))
    assert {each for each in sets if diameters(points, (each,), by)[0] <= most} <= {
        each for each in sets if any({*each} <= {*wider} for wider in found)
    }


@given(divided())
def test_without_a_limit_the_sets_are_those_of_the_partition(drawn):
    points, by, k, sets = drawn
    assert sets_within(points, sets, k, 1e9, by) == sets


@given(divided(), st.floats(0, 3))
def test_who_is_in_no_set_has_fewer_than_k_minus_1_of_these_near(drawn, most):
    points, by, k, sets = drawn
    assume(k > 1)
    found = sets_within(points, sets, k, most, by)
    outside = tuple(sorted({*range(len(points))} - {i for each in found for i in each}))
    if outside:
        half = most / 2 if by == "l2" else most / 4
        (near,) = neighbours(points, (outside,), half * (1 - 1e-6), by)
        assert all(len(each) < k - 1 for each in near)


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
    found = merged(0.5)
    everybody = ("A", "B", "C", "D", "E")
    assert found.events == (ClientsOutsideSets(0, everybody), ClusterWaited(0, 5, 2))
    assert float(found.clusters[0]["w"]) == 100.0


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
