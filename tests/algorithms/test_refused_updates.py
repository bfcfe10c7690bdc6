"""Updates that are not finite: refused in a simulation, whatever merges the rest."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aggregation.hiding import hiding, sound
from algorithms.playing import begun, clients_with, setup_of
from covey import (
    ClientUpdate,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    RoundResult,
    ServerState,
    Streams,
)
from covey.aggregation.anonymity import HidingRound
from covey.aggregation.base import ClusterMeans
from covey.aggregation.mean import NoisyMeans, clipped
from covey.algorithms.algorithm import Opening
from covey.algorithms.clients import Clients
from covey.algorithms.round import divergences
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import ClientMemory, Cohort, initial_state
from covey.base.events import (
    AnonymitySetsFormed,
    AnswerRefused,
    ClientsAssigned,
    ModelsMerged,
    RepresentativesPerturbed,
    SumPerturbed,
)
from covey.data.examples import Client, Preference
from support.aggregating import means

STREAMS = Streams(0)
START: Params = {"w": torch.zeros(3)}
BAD = (math.nan, math.inf, -math.inf)
MERGES = {"mean": means, "anonymity sets": partial(HidingRound, hiding=hiding(2))}
NOISY = {
    "client noise": partial(NoisyMeans, clip=1.0, noise_multiplier=0.5),
    "sound sets": partial(HidingRound, hiding=sound(2, 1.0, 0.5)),
}


class Sending(Simulated):
    """Clients whose training comes to a number each."""

    def __init__(self, sent: Mapping[str, float]) -> None:
        super().__init__(ReferenceEngine(torch.nn.Linear(1, 1)), Recipe())
        object.__setattr__(self, "sent", sent)

    def train(self, models, cohort, assignment, streams, inputs=None) -> Iterator[ClientUpdate]:
        sent = getattr(self, "sent")  # noqa: B009
        for c in cohort:
            update = {"w": torch.tensor([1.0, sent[c.handle], 1.0])}
            yield ClientUpdate(c.handle, assignment[c.handle], update, 1.0)


def steps_with(sent: Mapping[str, Any], merge: Any, *, accounted: bool = False) -> Clients:
    """Clients that send a vector of the number that they are told to."""
    how = {"dp_accounted": accounted, "post_processors": (clipped(1.0),) if accounted else ()}
    return clients_with(Sending(sent), aggregation=merge, **how)


@pytest.fixture
def people(make_client) -> Callable[[str], Cohort]:
    one = Examples(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    return lambda names: tuple(make_client(name, one) for name in names)


def moved(
    steps: Clients, cohort: Cohort, before: ServerState | tuple[Params, ...] = (START,)
) -> RoundResult:
    state = initial_state(before) if isinstance(before, tuple) else before
    chosen = ClientsAssigned({c.handle: 0 for c in cohort}, "clients")
    return steps.among(cohort).train_and_aggregate(state, chosen, STREAMS)


def facts(played: RoundResult, kind: type[Any]) -> list[Any]:
    return [event for event in played.events if isinstance(event, kind)]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_a_refused_client_is_as_one_that_did_not_come(people, merge, bad):
    sent = {"A": 1.0, "B": 2.0, "C": bad, "D": 4.0}
    with_it = moved(steps_with(sent, merge), people("abcd"))
    without = moved(steps_with(sent, merge), people("ab" + "d"))
    reason = "its update of w must hold finite numbers only"
    assert with_it.events == (AnswerRefused("C", reason), *without.events)
    assert torch.equal(with_it.state.clusters[0]["w"], without.state.clusters[0]["w"])
    assert with_it.state.assignment == without.state.assignment
    assert facts(with_it, ModelsMerged)[0].participants == (3,)
    for formed in facts(with_it, AnonymitySetsFormed):
        assert "C" not in {handle for members in formed.sets for handle in members}
    assert not divergences(with_it.state)


def test_a_refused_client_keeps_what_it_kept(people):
    class Keeping(Sending):
        def train(self, *args: Any, **named: Any) -> Iterator[ClientUpdate]:
            for update in super().train(*args, **named):
                yield replace(update, kept={"h": update.update})

    old = {h: {"h": {"w": torch.zeros(1)}} for h in "AB"}
    before = initial_state((START,)).with_state(ClientMemory(kept=old))
    played = moved(
        clients_with(Keeping({"A": 1.0, "B": math.nan, "C": 3.0})), people("abc"), before
    )
    memories = played.state.get_state(ClientMemory).kept
    assert {h: len(memory["h"]["w"]) for h, memory in memories.items()} == {"A": 3, "B": 1, "C": 3}


def test_a_model_whose_cohort_is_refused_has_diverged_until_an_update_is_accepted(people):
    nan, fine = (steps_with(dict.fromkeys("ABC", v), means) for v in (math.nan, 1.0))
    played = moved(nan, people("abc"), (START, START))
    assert all(torch.equal(model["w"], START["w"]) for model in played.state.clusters)
    assert len(facts(played, AnswerRefused)) == 3
    assert facts(played, ClientsAssigned)[0].clusters == {}
    assert list(divergences(played.state)) == [0]
    without_clients = moved(fine, (), played.state)
    assert "diverged: no update" in divergences(without_clients.state)[0]
    assert not divergences(moved(fine, people("a"), without_clients.state).state)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", NOISY)
def test_where_noise_is_accounted_for_a_refused_client_counts_as_zero(people, name, bad):
    sent = {"A": 0.1, "B": 0.2, "C": bad, "D": 0.4}
    accounted = steps_with(sent, NOISY[name], accounted=True)
    refused = moved(accounted, people("abcd"))

    class Zero(Sending):
        def train(self, *arguments: Any, **more: Any) -> Iterator[ClientUpdate]:
            for update in super().train(*arguments, **more):
                nothing = {"w": torch.zeros(3)}
                yield replace(update, update=nothing) if update.handle == "C" else update

    as_zero = moved(replace(accounted, federation=Zero(sent)), people("abcd"))
    assert refused.events[1:] == as_zero.events
    assert torch.equal(refused.state.clusters[0]["w"], as_zero.state.clusters[0]["w"])
    assert facts(refused, ModelsMerged)[0].participants == (4,)
    assert "C" in facts(refused, ClientsAssigned)[0].clusters
    # noise is paid for where every update was refused
    all_refused = steps_with(dict.fromkeys("ABCD", bad), NOISY[name], accounted=True)
    for played in (refused, moved(all_refused, people("abcd"))):
        assert facts(played, SumPerturbed) + facts(played, RepresentativesPerturbed)
        assert not torch.equal(played.state.clusters[0]["w"], START["w"])
        assert torch.isfinite(played.state.clusters[0]["w"]).all()
    assert divergences(played.state)


def test_a_warm_start_splits_by_the_finite_updates(people):
    # b and e send NaN: the rest falls into two groups, and these two join none.
    sent = dict(zip("ACGDFHBE", (9, 9.1, 9.2, -9, -9.1, -9.2, *[math.nan] * 2), strict=True))
    steps = steps_with(sent, means)
    warm = begun(setup_of(lambda _: START), steps, Opening("warm", 0, 2))
    played = warm.play_round(warm.init(STREAMS), people("abcdefgh"), STREAMS)
    split = facts(played, ClientsAssigned)[0].clusters
    assert set(split) == set("ACDFGH")
    assert split["A"] == split["C"] == split["G"] != split["D"]
    assert split["D"] == split["F"] == split["H"]
    assert {event.handle for event in facts(played, AnswerRefused)} == {"B", "E"}


@given(
    values=st.lists(st.floats(width=32) | st.sampled_from(BAD), max_size=8), accounted=st.booleans()
)
def test_finite_updates_come_through_as_they_are_and_no_other_does(values, accounted):
    received = list[ClientUpdate]()

    class Noting(ClusterMeans):
        def add(self, update: ClientUpdate) -> None:
            received.append(update)

    handles = "ABCDEFGH"[: len(values)]
    clients = clients_with(
        Sending(dict(zip(handles, values, strict=True))),
        aggregation=lambda models, _: Noting(models),
        dp_accounted=accounted,
    )
    nothing = Examples(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64))
    people = (Client(h, h, None, nothing, nothing, Preference(0.0, 1.0)) for h in handles)
    played = moved(clients, tuple(people))
    finite = {h: v for h, v in zip(handles, values, strict=True) if math.isfinite(v)}
    assert [update.handle for update in received] == (list(handles) if accounted else list(finite))
    for client_update in received:
        expected = (
            [1.0, finite[client_update.handle], 1.0]
            if client_update.handle in finite
            else [0.0] * 3
        )
        assert client_update.update["w"].tolist() == expected
    assert [event.handle for event in facts(played, AnswerRefused)] == [
        handle for handle in handles if handle not in finite
    ]
