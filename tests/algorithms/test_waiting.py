"""Clusters with too few clients to hide one among them: who waits, and for how long."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from aggregation import hiding as ways
from algorithms.playing import Playing, ifca
from covey import ServerState, Streams
from covey.aggregation.anonymity import HidingRound
from covey.algorithms.clients import Clients
from covey.algorithms.round import RoundSteps
from covey.algorithms.state import Waiting
from covey.base.events import ClusterAbandoned, ClusterWaited, Event
from covey.data.examples import Client

STREAMS = Streams(0)


def hiding(steps: Clients, k: int, patience: int) -> Clients:
    how = ways.hiding(k)
    begin = partial(HidingRound, hiding=how)
    return replace(steps, steps=RoundSteps(begin, patience=patience))


@pytest.fixture
def lonely(steps, models) -> Callable[..., Playing]:
    """IFCA with w = 1 and w = -1, where two must hide together."""

    def make(patience: int, k: int = 2, **more: object) -> Playing:
        hidden = replace(hiding(steps, k, patience), **more)
        return ifca(models(1.0, -1.0), hidden)

    return make


@pytest.fixture
def cohort(point) -> tuple[Client, ...]:
    """Three that prefer the first model, and one that prefers the second."""
    return (*(point(name, 1, 1) for name in "abc"), point("z", 1, 0))


def rounds(
    strategy: Playing, *cohorts: tuple[Client, ...]
) -> list[tuple[ServerState, tuple[Event, ...]]]:
    state, played = strategy.init(STREAMS), []
    for each in cohorts:
        end = strategy.play_round(state, each, STREAMS.at("round", state.round_index))
        state = end.state
        played.append((state, end.events))
    return played


def waited(events: tuple[Event, ...]) -> list[int]:
    return [event.cluster for event in events if isinstance(event, ClusterWaited)]


@pytest.mark.parametrize("patience", [1, 3])
def test_a_cluster_that_waits_too_long_is_closed_and_its_clients_move_on(lonely, cohort, patience):
    played = rounds(lonely(patience), *[cohort] * (patience + 2))
    for state, events in played[:patience]:
        assert waited(events) == [1]
        assert state.assignment["Z"] == 1
        assert float(state.clusters[1]["w"]) == -1.0
    last = played[patience - 1][0]
    assert last.get_state(Waiting) == Waiting(rounds=(0, patience), closed=frozenset({1}))
    assert last.available() == (True, False)
    state, events = played[patience]
    assert state.assignment["Z"] == 0
    assert waited(events) == []
    assert ClusterAbandoned(1) in events
    assert state.get_state(Waiting).closed == frozenset()
    assert played[-1][0].available() == (True, False)


def test_a_round_in_which_nobody_came_neither_counts_nor_forgives(lonely, cohort):
    # whoever stays away keeps a cluster inhabited: it must not open again for that
    absent = cohort[:3]
    played = rounds(lonely(2), cohort, absent, cohort, absent, absent)
    assert [state.get_state(Waiting).rounds[1] for state, _ in played] == [1, 1, 2, 2, 2]
    assert [state.available() for state, _ in played[2:]] == [(True, False)] * 3
    state = played[-1][0]
    assert state.assignment["Z"] == 1
    strategy = lonely(2)
    end = strategy.play_round(state, cohort, STREAMS.at("round", 5))
    assert end.state.assignment["Z"] == 0


def test_the_last_cluster_is_never_closed(lonely, cohort):
    played = rounds(lonely(1, k=5), *[cohort] * 3)
    for t, (state, events) in enumerate(played):
        assert waited(events) == [0, 1]
        assert state.get_state(Waiting).rounds == (t + 1, t + 1)
        assert state.get_state(Waiting).closed == frozenset()
        assert [float(model["w"]) for model in state.clusters] == [1.0, -1.0]


def test_recorded_choices_hold_where_a_cluster_is_closed_by_now(lonely, cohort):
    # without the one who left, the cluster waits earlier: the others stay as they were
    recorded = {t: {"Z": 1} for t in range(3)}
    played = rounds(lonely(1, recorded=recorded), *[cohort] * 4)
    assert [state.assignment["Z"] for state, _ in played] == [1, 1, 1, 0]
    assert [state.get_state(Waiting).rounds[1] for state, _ in played[:3]] == [1, 2, 3]
