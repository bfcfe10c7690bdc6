"""Who enters or waits outside a cluster, and for how long."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from aggregation import hiding as ways
from algorithms.playing import Playing, ifca, playing, setup_of
from covey import ServerState, Streams
from covey.aggregation.anonymity import HidingRound
from covey.algorithms.clients import Clients
from covey.algorithms.ifca import Ifca, InitialMembers, limit_cluster_switches
from covey.algorithms.round import RoundSteps
from covey.algorithms.selection import SelectionResult
from covey.algorithms.state import Waiting
from covey.base.events import (
    ClientsAssigned,
    ClusterAbandoned,
    ClusterWaited,
    Event,
    NewcomersWaited,
)
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
    for cohort_of_round in cohorts:
        end = strategy.play_round(state, cohort_of_round, STREAMS.at("round", state.round_index))
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


FOUNDED = dict.fromkeys("abcdefgh", 1) | dict.fromkeys("stuvwxyz", 0)


def chosen(
    clusters: Mapping[str, int],
    share: float = 0.25,
    founded: Mapping[str, int] = FOUNDED,
    seed: int = 0,
) -> SelectionResult:
    state = ServerState(5, (), dict(founded))
    choice = SelectionResult(state, dict(clusters), ())
    return limit_cluster_switches(choice, state, share, Streams(seed))


@pytest.mark.parametrize(
    ("initial", "share", "let_in"),
    [(8, 0.25, 2), (7, 0.25, 1), (2, 0.25, 1), (8, 1.0, 8), (10, 0.7, 7)],
)
def test_so_many_newcomers_as_a_share_of_the_founders_and_at_least_one(initial, share, let_in):
    home = {f"f{i}": 1 for i in range(initial)}
    strangers = {f"n{i}": 0 for i in range(9)}
    choice = chosen(dict.fromkeys((*home, *strangers), 1), share, home | strangers)
    assert choice.clusters.keys() >= home.keys()
    assert len(choice.clusters) == initial + let_in
    assert choice.events == (NewcomersWaited(1, initial, 9, 9 - let_in),)


def test_founders_always_train_and_of_the_others_some_are_drawn_anew():
    for at_home in (FOUNDED, {**FOUNDED, "s": 1}):
        choice = chosen(at_home)
        assert (choice.clusters, choice.events) == (at_home, ())
    flood = {**FOUNDED, **dict.fromkeys("stuvwxyz", 1)}
    assert chosen(flood, seed=1).clusters == chosen(flood, seed=1).clusters
    seen = {h for s in range(30) for h in chosen(flood, seed=s).clusters}
    assert seen == set(flood)  # nobody waits for ever


def test_founders_are_who_trained_a_cluster_when_clients_first_chose_and_stay_so():
    first = chosen({**FOUNDED, "s": 1})
    assert first.state.get_state(InitialMembers).clusters == FOUNDED
    moved = first.state.with_choices(first.clusters)
    later = limit_cluster_switches(
        SelectionResult(moved, {**FOUNDED, "s": 1, "t": 1, "u": 1}, ()), moved, 0.25, STREAMS
    )
    assert later.events == (NewcomersWaited(1, 8, 3, 1),)
    # Without an earlier cluster the first choices found them.
    assert chosen({"a": 1, "b": 0}, founded={}).state.get_state(InitialMembers).clusters == {
        "a": 1,
        "b": 0,
    }
    assert "a" not in first.state.without({"a"}).get_state(InitialMembers).clusters


def test_who_waits_trains_nothing_and_a_round_that_is_played_again_lets_in_the_same(
    steps, point, models
):
    # Three like w = 1 and one w = -1; then two of the three choose the one's cluster.
    cohort = (*(point(name, 1, 1) for name in "abc"), point("z", 1, 0))
    turned = (point("a", 1, 1), *(point(n, 1, 0) for n in "bcz"))

    def flooded(recorded: Mapping[int, Mapping[str, int]]):
        algorithm = Ifca(initialisation="random", max_newcomers=0.25)
        how = replace(steps, recorded=recorded)
        strategy = playing(algorithm, setup_of(models(1.0, -1.0)), how)
        first = strategy.play_round(strategy.init(STREAMS), cohort, STREAMS)
        played = strategy.play_round(first.state, turned, STREAMS)
        (fact,) = (e for e in played.events if isinstance(e, ClientsAssigned))
        return played, fact.clusters

    played, clusters = flooded({})
    assert {h: j for h, j in clusters.items() if h in "AZ"} == {"A": 0, "Z": 1}
    (waiting,) = {"B", "C"} - clusters.keys()
    assert played.state.assignment[waiting] == 0
    assert NewcomersWaited(1, 1, 2, 1) in played.events
    # Another who waited then, and nobody may take the place of the one that left.
    others = {"A": 0, waiting: 1, "Z": 1}
    _, again = flooded({1: others})
    assert again == others
