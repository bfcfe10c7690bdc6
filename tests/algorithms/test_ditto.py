"""Ditto: the shared model is FedAvg's, and every client's own one stays near it."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import covey
from algorithms.playing import Playing, clients_with, fedavg, playing, setup_of
from covey import Examples, Params, Recipe, ReferenceEngine, ServerState, Streams
from covey.algorithms.clients import Clients
from covey.algorithms.fedavg import Ditto
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import ClientMemory, Cohort, personal_models
from covey.base.params import model_hash
from covey.engine.recipe import REGRESSION

CLIENTS = 3
SMALL = {
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
    found = [play.init(Streams(0))]
    for t, cohort in enumerate(cohorts):
        streams = Streams(0).at("round", t)
        found.append(play.play_round(found[-1], cohort, streams).state)
    return found


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
    cohorts = [tuple(people[i] for i in sorted(some)) for some in later]
    plain = rounds(fedavg(line, steps_of(None)), cohorts)[-1]
    assert model_hash(rounds(ditto(lam), cohorts)[-1].clusters) == model_hash(plain.clusters)


def test_an_own_model_that_diverges_stays_as_it_was(people):
    wild, one = ditto(1e38, local_steps=3), people[1]
    assert own(rounds(wild, [(one,)])[-1]) == {}
    kept = {one.handle: {"personal": {"weight": torch.tensor([[0.5]])}}}
    start = wild.init(Streams(0)).with_state(ClientMemory(kept=kept))
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
        how = {**SMALL, "train.local_epochs": 4, "method": method}
        return covey.run(config=how, out=tmp_path / name).summary.accuracy

    assert accuracy("own", Ditto(lam=0)) == accuracy("alone", {"name": "local"})
