"""Who may enter a cluster between rounds: by hand, and on its way through a round."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from algorithms.playing import playing, setup_of
from covey import ServerState, Streams
from covey.algorithms.ifca import Ifca, InitialMembers, limit_cluster_switches
from covey.algorithms.selection import SelectionResult
from covey.base.events import ClientsAssigned, NewcomersWaited

STREAMS = Streams(0)
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
    ("founders", "share", "let_in"),
    [(8, 0.25, 2), (7, 0.25, 1), (2, 0.25, 1), (8, 1.0, 8), (10, 0.7, 7)],
)
def test_so_many_newcomers_as_a_share_of_the_founders_and_at_least_one(founders, share, let_in):
    home = {f"f{i}": 1 for i in range(founders)}
    strangers = {f"n{i}": 0 for i in range(9)}
    found = chosen(dict.fromkeys((*home, *strangers), 1), share, home | strangers)
    assert found.clusters.keys() >= home.keys()
    assert len(found.clusters) == founders + let_in
    assert found.events == (NewcomersWaited(1, founders, 9, 9 - let_in),)


def test_founders_always_train_and_of_the_others_some_are_drawn_anew():
    for at_home in (FOUNDED, {**FOUNDED, "s": 1}):
        found = chosen(at_home)
        assert (found.clusters, found.events) == (at_home, ())
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
