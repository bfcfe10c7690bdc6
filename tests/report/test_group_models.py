"""A group's model, and the accuracy of those who chose it, beside that of the group's data."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.base.events import ClientExposed
from covey.base.figure import Figure
from covey.report.clients import ClientSummary
from covey.report.group_models import GroupModel, group_models

NONE = Figure.unknown("not attacked")


def ended(handle: str, group: str | None, cluster: int, accuracy: float | None) -> ClientSummary:
    end = ClientExposed(handle, cluster, accuracy, NONE)
    return ClientSummary(handle, group, cluster, None, None, end, None, None, NONE, frozenset())


def test_who_moves_away_is_not_in_the_minoritys_model_by_hand():
    clients = [
        *(ended(f"a{i}", "majority", 0, 0.9) for i in range(5)),
        *(ended(f"b{i}", "minority", 0, 0.4) for i in range(3)),  # most of the minority moved
        ended("c", "minority", 1, 0.8),
    ]
    found = group_models(clients, 2)
    assert replace(found["majority"], accuracy=None) == GroupModel(0, 8, None, 0)
    assert found["majority"].accuracy == pytest.approx((5 * 0.9 + 3 * 0.4) / 8)
    assert found["minority"] == GroupModel(1, 1, 0.8, 3)  # its data: (3 * 0.4 + 0.8) / 4 = 0.5


def test_a_model_that_the_whole_group_left_has_no_accuracy():
    clients = [ended("a", "majority", 1, 0.9), ended("b", "minority", 1, 0.5)]
    found = group_models(clients, 2)
    assert sorted((each.clients, each.accuracy, each.moved) for each in found.values()) == [
        (0, None, 1),
        (2, 0.7, 0),
    ]


def test_an_unknown_accuracy_and_fewer_models_than_groups_say_nothing():
    clients = [ended("a", "x", 0, None), ended("b", "y", 1, 0.5)]
    assert group_models(clients, 2)["x"].accuracy is None
    assert group_models(clients, 1) == {}
    assert group_models([ended("a", None, 0, 0.5)], 2) == {}


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3)), min_size=1))
def test_no_two_groups_share_a_model_and_most_clients_are_in_their_groups(choices):
    clients = [ended(f"{i}", group, j, 1.0) for i, (group, j) in enumerate(choices)]
    found = group_models(clients, 4)
    groups = sorted(found)
    assert len({each.cluster for each in found.values()}) == len(groups)
    at_home = sum(choices.count((group, found[group].cluster)) for group in groups)
    best = max(
        sum(choices.count(pair) for pair in zip(groups, models, strict=True))
        for models in permutations(range(4), len(groups))
    )
    assert at_home == best
    assert sum(each.moved for each in found.values()) == len(choices) - best
    assert all(
        each.clients == sum(j == each.cluster for _, j in choices) for each in found.values()
    )
