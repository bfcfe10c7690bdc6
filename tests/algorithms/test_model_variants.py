"""A menu of releases: who trains which, and who is offered which."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey.algorithms import (
    MENU,
    Cohort,
    RoundResult,
    ServerState,
    Steps,
    menu_shares,
    on_the_menu,
    one_model,
    targets,
)
from covey.data.examples import Client
from covey.events import (
    ClientsAssigned,
    ClusterAbandoned,
    ClustersCollapsed,
    ModelsMerged,
)
from covey.releases import cluster_of, fed
from covey.rng import Streams

Point = Callable[..., Client]
Models = Callable[..., Callable[[Streams], dict[str, Tensor]]]
STREAMS = Streams(0)


@pytest.fixture
def start(models: Models) -> ServerState:
    """Two clusters in three releases, all of them w = 1."""
    return on_the_menu(one_model(models(1.0), 2))(STREAMS)


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_a_client_trains_its_own_cluster_from_its_own_release_on(
    clusters: int, releases: int, data: st.DataObject
):
    models = clusters * releases
    own = data.draw(st.integers(0, models - 1))
    trained = fed(own, models, releases)
    assert trained[0] == own
    assert len(trained) == releases - own // clusters
    assert {cluster_of(j, models, releases) for j in trained} == {own % clusters}


def test_shares_rise_from_release_to_release():
    assert menu_shares(2)(None) == tuple(s for s in MENU for _ in range(2))  # pyright: ignore
    assert list(MENU) == sorted(MENU)


def moved(
    steps: Steps, state: ServerState, cohort: Cohort, chosen: Sequence[int]
) -> RoundResult:
    own = {c.handle: j for c, j in zip(cohort, chosen, strict=True)}
    return steps.train_and_aggregate(
        state, cohort, ClientsAssigned(own, "clients"), STREAMS
    )


def test_an_update_moves_what_shares_as_much_or_more(
    steps: Steps, point: Point, start: ServerState
):
    # Cluster 0: A uses release 0 and B release 1. gradient of class 1 at w = 1 and x = 1:
    # s(1) - 1 = -0.268941 (A); of class 0: 0.731059 (B). Release 0 moves by A's update,
    # releases 1 and 2 by the mean of both; cluster 1 stays at 1.
    cohort = (point("a", 1, 1), point("b", 1, 0))
    after, events, _ = moved(steps, start, cohort, [0, 2])
    both = 1 + (0.268941 - 0.731059) / 2
    found = [float(model["w"]) for model in after.clusters]
    assert found == pytest.approx([1.268941, 1, both, 1, both, 1], abs=1e-5)
    (fact,) = (event for event in events if isinstance(event, ModelsMerged))
    assert fact.participants == (1, 0, 2, 0, 2, 0)


def test_a_release_that_nobody_trains_is_not_offered(
    steps: Steps, point: Point, start: ServerState
):
    cohort = (point("a", 1, 1), point("b", 1, 0))
    assert all(start.available())
    both, *_ = moved(steps, start, cohort, [0, 3])  # cluster 1 is used in release 1
    assert both.available() == (True, False, True, True, True, True)
    one, events, _ = moved(steps, both, cohort, [2, 4])
    assert one.available() == (False, False, True, False, True, False)
    gone = [event for event in events if isinstance(event, ClusterAbandoned)]
    assert [event.cluster for event in gone] == [0, 3, 5]
    assert ClustersCollapsed(0) in events


def test_the_red_team_counts_everybody_who_trains_a_release(
    steps: Steps, point: Point, start: ServerState
):
    cohort = (point("a", 1, 1), point("b", 1, 0))
    state, *_ = moved(steps, start, cohort, [0, 2])
    members = [
        [client.name for client in target.members]
        for target in targets(state, {c.handle: c for c in cohort})
    ]
    assert members == [["a"], [], ["a", "b"], [], ["a", "b"], []]


def test_without_a_menu_a_client_trains_one_model(start: ServerState):
    state = replace(start.with_choices({"A": 2}), releases=1)
    assert [*state.trained_by("A")] == [2]
    assert torch.tensor(state.available()).nonzero().flatten().tolist() == [2]
