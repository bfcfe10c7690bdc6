"""Personal objectives: Ditto, FedProx, what is sent along."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import covey
from algorithms.playing import Playing, clients_with, fedavg, playing, setup_of
from covey import (
    ClientUpdate,
    Examples,
    Objective,
    Params,
    Recipe,
    ReferenceEngine,
    ServerState,
    Streams,
)
from covey.algorithms.clients import Clients
from covey.algorithms.fedavg import Ditto, FedProx
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import ClientMemory, Cohort, initial_state, personal_models, with_memory
from covey.base.params import model_hash
from covey.engine.recipe import REGRESSION

SMALL = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "minority_share": 0.25},
    "model.name": "linear",
    "train.local_epochs": 2,
    "risk.name": "none",
}


def test_the_pull_is_the_objective_of_the_settings(tmp_path):
    objective = {"method.name": "fedavg", "train.objective": {"name": "proximal", "mu": 1.0}}
    prox, same = (
        covey.run(config={**SMALL, **how}, out=tmp_path / str(i)).summary.model_hash
        for i, how in enumerate(({"method": FedProx(mu=1)}, objective))
    )
    assert prox == same


def update(handle: str, remembered: float | None) -> ClientUpdate:
    memory = None if remembered is None else {"h": {"w": torch.tensor([remembered])}}
    return ClientUpdate(handle, 0, {"w": torch.zeros(1)}, 1.0, memory)


def test_a_memory_leaves_with_its_client():
    old = {"A": {"h": {"w": torch.tensor([1.0])}}}
    state = initial_state(({"w": torch.zeros(1)},)).with_state(ClientMemory(kept=old))
    after = with_memory(state, {"B": update("B", 3.0).kept or {}}, 0)
    weights = {
        handle: float(memory["h"]["w"])
        for handle, memory in after.get_state(ClientMemory).kept.items()
    }
    assert weights == {"A": 1.0, "B": 3.0}
    assert state.without(["A"]).get_state(ClientMemory).kept == {}


CLIENTS = 3
SMALL_DITTO = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "minority_share": 0.25},
    "model.name": "linear",
    "risk.name": "none",
}


def line(_: Streams) -> Params:
    return {"weight": torch.zeros(1, 1)}


def steps_of(lam: float | None, **recipe: float) -> Clients:
    """Clients that train a line, and beside it own ones unless `lam` is None."""
    engine = ReferenceEngine(nn.Linear(1, 1, bias=False), REGRESSION)
    personal = None if lam is None else Ditto(lam=lam).personal
    how = Recipe(**{"local_steps": 1, "learning_rate": 0.1, **recipe})
    return clients_with(Simulated(engine, replace(how, personal=personal)))


def ditto(lam: float, **recipe: float) -> Playing:
    return playing(Ditto(lam=lam), setup_of(line), steps_of(lam, **recipe))


def rounds(play: Playing, cohorts: list[Cohort]) -> list[ServerState]:
    states = [play.init(Streams(0))]
    for t, cohort in enumerate(cohorts):
        streams = Streams(0).at("round", t)
        states.append(play.play_round(states[-1], cohort, streams).state)
    return states


@pytest.fixture(scope="module")
def people(make_client) -> Cohort:
    """Client i holds examples of y = i x."""
    xs = torch.linspace(-1, 1, 7)[:, None]
    return tuple(
        make_client(f"c{i}", Examples(xs + i / 10, (i * (xs + i / 10))[:, 0]))
        for i in range(CLIENTS)
    )


def own(state: ServerState) -> dict[str, float]:
    return {h: float(model["weight"]) for h, model in personal_models(state).items()}


def test_two_steps_by_hand(make_client):
    # x = 1, so the gradient at w is w - y; y is 1 for A, and -1 for B, who comes later.
    # A begins at theta = 0: v = 0.1 * 1 = 0.1, which is theta then; so v = 0.1 + 0.1 * 0.9
    a = make_client("a", Examples(torch.ones(1, 1), torch.ones(1)))
    b = make_client("b", Examples(torch.ones(1, 1), -torch.ones(1)))
    states = rounds(ditto(0.5), [(a,), (a, b), (a, b)])
    assert own(states[1]) == pytest.approx({"A": 0.1})
    # B begins at theta = 0.1: v = 0.1 - 0.1 * 1.1 = -0.01; theta = (0.19 - 0.01) / 2
    assert own(states[2]) == pytest.approx({"A": 0.19, "B": -0.01})
    assert float(states[2].clusters[0]["weight"]) == pytest.approx(0.09)
    # v of A is 0.19 - 0.1 ((0.19 - 1) + 0.5 (0.19 - 0.09)) = 0.266
    # v of B is -0.01 - 0.1 ((-0.01 + 1) + 0.5 (-0.01 - 0.09)) = -0.104
    assert own(states[3]) == pytest.approx({"A": 0.266, "B": -0.104})


cohorts_of = st.lists(st.sets(st.integers(0, CLIENTS - 1)), max_size=3)


@given(later=cohorts_of, lam=st.floats(0, 1))
def test_the_shared_model_is_fedavgs_whatever_the_pull(people, later, lam):
    cohorts = [tuple(people[i] for i in sorted(present)) for present in later]
    plain = rounds(fedavg(line, steps_of(None)), cohorts)[-1]
    assert model_hash(rounds(ditto(lam), cohorts)[-1].clusters) == model_hash(plain.clusters)


def test_an_own_model_that_diverges_stays_as_it_was(people):
    wild, one = ditto(1e38, local_steps=3), people[1]
    assert own(rounds(wild, [(one,)])[-1]) == {}
    memory = {one.handle: {"personal": {"weight": torch.tensor([[0.5]])}}}
    start = wild.init(Streams(0)).with_state(ClientMemory(kept=memory))
    after = wild.play_round(start, (one,), Streams(0)).state
    assert own(after) == {one.handle: 0.5}


def test_who_leaves_takes_its_model_along(people):
    state = rounds(ditto(0.1), [people])[-1]
    left = people[0].handle
    assert left in own(state)
    assert own(state.without([left])).keys() == own(state).keys() - {left}


@pytest.mark.slow
def test_the_accuracy_of_a_client_is_that_of_its_own_model(tmp_path):
    def accuracy(name: str, method: object) -> object:
        how = {**SMALL_DITTO, "train.local_epochs": 4, "method": method}
        return covey.run(config=how, out=tmp_path / name).summary.accuracy

    assert accuracy("own", Ditto(lam=0)) == accuracy("alone", {"name": "local"})


STREAMS = Streams(0)


class Push(Objective):
    """Add what was sent to the gradient, and keep what was seen of it."""

    def correction(self, weights, start, memory):
        return memory.get("push")

    def remember(self, memory, start, trained, steps, recipe):
        return {"seen": memory["push"]} if "push" in memory else {}


def test_it_reaches_everybody_by_hand_and_is_gone_in_the_next_round(make_client):
    # two clients with x = 1, and y = 1 or -1
    engine = ReferenceEngine(nn.Linear(1, 1, bias=False), REGRESSION)
    recipe = Recipe(local_steps=1, learning_rate=0.1, objective=Push())
    cohort = tuple(
        make_client(name, Examples(torch.ones(1, 1), torch.tensor([y])))
        for name, y in (("a", 1.0), ("b", -1.0))
    )
    clients = clients_with(Simulated(engine, recipe)).among(cohort)
    start = initial_state(({"weight": torch.zeros(1, 1)},))
    sent = clients.sent_along(push={"weight": torch.full((1, 1), 3.0)})
    shared = sent.all_in_one("shared")
    request = replace(sent, wants_losses=True)
    updates = list(request.train(start.clusters, shared.clusters, STREAMS))
    known = {update.handle: update.loss for update in updates}
    # w = 0 - 0.1 ((0 - y) + 3): -0.2 for y = 1 and -0.4 for y = -1
    assert [float(u.update["weight"]) for u in updates] == pytest.approx([-0.2, -0.4])
    assert all(float((u.kept or {})["seen"]["weight"]) == 3.0 for u in updates)
    # the first step's loss at w = 0 is known as somebody asks: half of (0 - y)^2
    assert known == pytest.approx({"A": 0.5, "B": 0.5})
    first = sent.train_and_aggregate(start, shared, STREAMS).state
    assert float(first.clusters[0]["weight"]) == pytest.approx(-0.3)
    second = clients.train_and_aggregate(first, shared, STREAMS).state
    # w = -0.3 - 0.1 (-0.3 - y), mean over y = 1 and -1
    assert float(second.clusters[0]["weight"]) == pytest.approx(-0.27)
