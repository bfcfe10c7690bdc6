"""Updates that are not finite: refused in a simulation, whatever merges the rest."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aggregation.hiding import hiding, sound
from algorithms.playing import begun, clients_with, fedavg, isolated, setup_of
from covey import (
    ClientUpdate,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    RoundResult,
    Streams,
    mean_per_cluster,
)
from covey.aggregation.anonymity import anonymity_aggregator
from covey.aggregation.base import finite_updates, refusal_events
from covey.aggregation.mean import Clipping, clipped, noised_mean
from covey.algorithms.algorithm import Opening
from covey.algorithms.clients import Clients, divergences
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import Cohort, initial_state
from covey.base.events import (
    AnonymitySetsFormed,
    AnswerRefused,
    ClientsAssigned,
    ModelsMerged,
    RepresentativesPerturbed,
    SumPerturbed,
)
from covey.base.names import Handle
from covey.data.examples import Client

STREAMS = Streams(0)
START: Params = {"w": torch.zeros(3)}
BAD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
MDAV = hiding(2)
MERGES = {"mean": mean_per_cluster, "anonymity sets": anonymity_aggregator(MDAV)}
NOISY = {
    "client noise": noised_mean(Clipping(1.0, 0.5)),
    "sound sets": anonymity_aggregator(sound(2, 1.0, 0.5)),
}


class Sending(Simulated):
    """Clients whose training comes to a number each, and who look at no model."""

    sent: Mapping[str, float]

    def __init__(self, sent: Mapping[str, float]) -> None:
        super().__init__(ReferenceEngine(torch.nn.Linear(1, 1)), Recipe())
        object.__setattr__(self, "sent", sent)

    def train(
        self,
        models: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: object = None,
    ) -> Iterator[ClientUpdate]:
        for c in cohort:
            update = {"w": torch.tensor([1.0, self.sent[c.name], 1.0])}
            yield ClientUpdate(c.handle, assignment[c.handle], update, 1.0)

    def training_longer(self) -> "Sending":
        return self

    def evaluate(self, models: object, cohort: object, streams: object) -> torch.Tensor:
        raise AssertionError


def steps_with(sent: Mapping[str, float], merge, *, accounted: bool = False) -> Clients:
    """Clients that send a vector of the number that they are told to."""

    transforms = (clipped(1.0),) if accounted else ()
    return clients_with(
        Sending(sent), aggregate=merge, dp_accounted=accounted, transforms=transforms
    )


@pytest.fixture
def people(make_client: Callable[..., Client]) -> Callable[[str], Cohort]:
    one = Examples(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    return lambda names: tuple(make_client(name, one) for name in names)


def moved(steps: Clients, cohort: Cohort, clusters: int = 1) -> RoundResult:
    state = initial_state((START,) * clusters)
    chosen = ClientsAssigned({c.handle: 0 for c in cohort}, "clients")
    return steps.among(cohort).train_and_aggregate(state, chosen, STREAMS)


def facts(played: RoundResult, kind: type[Any]) -> list[Any]:
    return [event for event in played.events if isinstance(event, kind)]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_a_refused_client_is_as_one_that_did_not_come(people, merge, bad):
    sent = {"a": 1.0, "b": 2.0, "c": bad, "d": 4.0}
    with_it = moved(steps_with(sent, merge), people("abcd"))
    without = moved(steps_with(sent, merge), people("ab" + "d"))
    told = "its update of w must hold finite numbers only"
    assert with_it.events == (AnswerRefused("C", told), *without.events)
    assert torch.equal(with_it.state.clusters[0]["w"], without.state.clusters[0]["w"])
    assert with_it.state.assignment == without.state.assignment
    assert facts(with_it, ModelsMerged)[0].participants == (3,)
    for formed in facts(with_it, AnonymitySetsFormed):
        assert "C" not in {handle for members in formed.sets for handle in members}
    assert not divergences(with_it.state)


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_a_cohort_that_is_refused_moves_nothing_and_its_model_has_diverged(people, merge):
    played = moved(steps_with(dict.fromkeys("abc", math.nan), merge), people("abc"), 2)
    assert all(torch.equal(model["w"], START["w"]) for model in played.state.clusters)
    assert len(facts(played, AnswerRefused)) == 3
    assert facts(played, ClientsAssigned)[0].clusters == {}
    assert list(divergences(played.state)) == [0]
    assert "its training diverged" in divergences(played.state)[0]


def test_a_stalled_model_stays_so_until_an_update_is_accepted(people):
    def then(sent: float, names: str, before: RoundResult) -> RoundResult:
        cohort = people(names)
        steps = steps_with(dict.fromkeys("abc", sent), mean_per_cluster)
        chosen = ClientsAssigned({c.handle: 0 for c in cohort}, "shared")
        return steps.among(cohort).train_and_aggregate(before.state, chosen, STREAMS)

    stalled = moved(steps_with(dict.fromkeys("abc", math.nan), mean_per_cluster), people("abc"))
    nobody = then(1.0, "", stalled)
    assert divergences(nobody.state)
    assert not divergences(then(1.0, "a", nobody).state)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("name", NOISY)
def test_where_noise_is_accounted_for_a_refused_client_counts_as_zero(people, name, bad):
    sent = {"a": 0.1, "b": 0.2, "c": bad, "d": 0.4}
    accounted = steps_with(sent, NOISY[name], accounted=True)
    refused = moved(accounted, people("abcd"))

    class Zero(Sending):
        def train(self, *asked: Any, **more: Any) -> Iterator[ClientUpdate]:
            for each in super().train(*asked, **more):
                nothing = {"w": torch.zeros(3)}
                yield replace(each, update=nothing) if each.handle == "C" else each

    as_zero = moved(replace(accounted, federation=Zero(sent)), people("abcd"))
    assert refused.events[1:] == as_zero.events
    assert torch.equal(refused.state.clusters[0]["w"], as_zero.state.clusters[0]["w"])
    assert facts(refused, ModelsMerged)[0].participants == (4,)
    assert "C" in facts(refused, ClientsAssigned)[0].clusters
    assert facts(refused, SumPerturbed if name == "client noise" else RepresentativesPerturbed)


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_paid_for_where_every_update_was_refused(people, name):
    sent = dict.fromkeys("abcd", math.nan)
    played = moved(steps_with(sent, NOISY[name], accounted=True), people("abcd"))
    assert not torch.equal(played.state.clusters[0]["w"], START["w"])
    assert torch.isfinite(played.state.clusters[0]["w"]).all()
    assert facts(played, SumPerturbed) + facts(played, RepresentativesPerturbed)
    assert divergences(played.state)


def test_no_refused_update_is_stored(people):
    sent = {"a": 1.0, "b": math.nan}
    keeping = replace(steps_with(sent, mean_per_cluster), stores_updates=True)
    played = moved(keeping, people("ab"))
    assert [each.handle for each in played.stored] == ["A"]


def test_a_warm_start_splits_by_the_finite_updates(people):
    # b and e send NaN: the rest falls into two groups, and these two join none.
    sent = {"a": 9.0, "b": math.nan, "c": 9.1, "d": -9.0, "e": math.nan, "f": -9.1}
    sent |= {"g": 9.2, "h": -9.2}
    steps = steps_with(sent, mean_per_cluster)
    warm = begun(setup_of(lambda _: START), steps, Opening("warm", 0, 2))
    played = warm.play_round(warm.init(STREAMS), people("abcdefgh"), STREAMS)
    split = facts(played, ClientsAssigned)[0].clusters
    assert set(split) == set("ACDFGH")
    assert split["A"] == split["C"] == split["G"] != split["D"]
    assert split["D"] == split["F"] == split["H"]
    assert {each.handle for each in facts(played, AnswerRefused)} == {"B", "E"}


def test_a_shared_round_of_refused_updates_stalls_every_cluster(people):
    steps = steps_with(dict.fromkeys("abc", math.nan), mean_per_cluster)
    warm = begun(setup_of(lambda _: START), steps, Opening("warm", 2, 2))
    played = warm.play_round(warm.init(STREAMS), people("abc"), STREAMS)
    assert set(divergences(played.state)) == {0, 1}


@pytest.mark.parametrize("method", ["fedavg", "isolated"])
def test_other_methods_refuse_too(people, method):
    cohort, sent = people("abc"), {"a": 1.0, "b": math.nan, "c": 3.0}
    steps = steps_with(sent, mean_per_cluster)
    strategy = (
        fedavg(lambda _: START, steps)
        if method == "fedavg"
        else isolated(lambda _: START, steps, 1, cohort)
    )
    played = strategy.play_round(strategy.init(STREAMS), cohort, STREAMS)
    assert torch.equal(played.state.clusters[0]["w"], torch.tensor([1.0, 2.0, 1.0]))
    assert [each.handle for each in facts(played, AnswerRefused)] == ["B"]


@given(
    values=st.lists(st.floats(width=32) | st.sampled_from(list(BAD.values())), max_size=8),
    as_zero=st.booleans(),
)
def test_finite_updates_come_through_as_they_are_and_no_other_does(values, as_zero):
    sent = [
        ClientUpdate(str(i), i % 2, {"w": torch.tensor([v]), "n": torch.tensor([7])}, 1.0)
        for i, v in enumerate(values)
    ]
    refused = []
    came = list(finite_updates(iter(sent), refused, as_zero=as_zero))
    fine = [each for each, v in zip(sent, values, strict=True) if math.isfinite(v)]
    assert [each for each in came if any(each is one for one in fine)] == fine
    rest = [each for each in came if not any(each is one for one in fine)]
    assert len(rest) == (len(sent) - len(fine) if as_zero else 0)
    assert all(not value.any() for each in rest for value in each.update.values())
    assert [each.handle for each in refusal_events(refused)] == [
        str(i) for i, v in enumerate(values) if not math.isfinite(v)
    ]


def test_a_client_that_sent_several_is_refused_once():
    bad = {"w": torch.tensor([math.nan])}
    refused = []
    updates = [ClientUpdate("A", j, bad, 1.0) for j in range(3)]
    assert not list(finite_updates(updates, refused))
    assert len(refusal_events(refused)) == 1
