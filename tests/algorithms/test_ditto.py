"""Ditto: the shared model is FedAvg's, and every client's own one stays near it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import covey
from algorithms.playing import Playing, fedavg, local_training, playing, setup_of
from covey import (
    Engine,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    ServerState,
    Streams,
    mean_per_cluster,
)
from covey.algorithms.fedavg import Ditto
from covey.algorithms.local_clients import LocalClients, evaluate_with, train_with
from covey.algorithms.round_steps import Steps
from covey.algorithms.state import ClientMemory, Cohort, personal_models
from covey.base.params import model_hash
from covey.data.examples import Client
from covey.engine.recipe import REGRESSION

MakeClient = Callable[..., Client]
CLIENTS = 3
SMALL = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "minority_share": 0.25},
    "model.name": "linear",
    "risk.name": "none",
}


def line(_: Streams) -> Params:
    return {"weight": torch.zeros(1, 1)}


def engine_of_a_line() -> Engine:
    return ReferenceEngine(nn.Linear(1, 1, bias=False), REGRESSION)


def steps_of(lam: float | None, **recipe: float) -> Steps:
    """Steps that train a line, and beside it own ones unless `lam` is None."""
    engine = engine_of_a_line()
    personal = None if lam is None else Ditto(lam=lam).personal
    how = Recipe(**{"local_steps": 1, "learning_rate": 0.1, **recipe})
    return Steps(
        LocalClients(evaluate_with(engine, "train", 0)),
        train_with(engine, replace(how, personal=personal), "equal"),
        mean_per_cluster,
    )


def ditto(lam: float, **recipe: float) -> Playing:
    return playing(Ditto(lam=lam), setup_of(line), steps_of(lam, **recipe))


def rounds(play: Playing, cohorts: list[Cohort]) -> list[ServerState]:
    found = [play.init(Streams(0))]
    for t, cohort in enumerate(cohorts):
        streams = Streams(0).at("round", t)
        found.append(play.play_round(found[-1], cohort, streams).state)
    return found


@pytest.fixture(scope="module")
def people(make_client: MakeClient) -> Cohort:
    """Client i holds examples of y = i x."""
    xs = torch.linspace(-1, 1, 7)[:, None]
    return tuple(
        make_client(f"c{i}", Examples(xs + i / 10, (i * (xs + i / 10))[:, 0]))
        for i in range(CLIENTS)
    )


def own(state: ServerState) -> dict[str, float]:
    return {h: float(model["weight"]) for h, model in personal_models(state).items()}


def test_two_steps_by_hand(make_client: MakeClient):
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
def test_the_shared_model_is_fedavgs_whatever_the_pull(
    people: Cohort, later: list[set[int]], lam: float
):
    cohorts = [tuple(people[i] for i in sorted(some)) for some in later]
    plain = rounds(fedavg(line, steps_of(None)), cohorts)[-1]
    assert model_hash(rounds(ditto(lam), cohorts)[-1].clusters) == model_hash(plain.clusters)


@given(later=cohorts_of)
def test_without_a_pull_everybody_trains_alone(people: Cohort, later: list[set[int]]):
    cohorts = [people, *(tuple(people[i] for i in sorted(some)) for some in later)]
    alone = rounds(local_training(line, steps_of(None), people), cohorts)[-1]
    mine = personal_models(rounds(ditto(0.0), cohorts)[-1])
    for j, client in enumerate(people):
        assert model_hash((mine[client.handle],)) == model_hash((alone.clusters[j],))


@given(v=st.floats(-2, 2), theta=st.floats(-2, 2))
def test_a_pull_of_one_over_the_rate_forgets_the_own_model_but_for_its_gradient(
    people: Cohort, v: float, theta: float
):
    # v - eta (g + (v - theta) / eta) = theta - eta g
    kept = {c.handle: {"personal": {"weight": torch.tensor([[v]])}} for c in people}
    play = ditto(10.0)
    start = replace(play.init(Streams(0)), clusters=({"weight": torch.tensor([[theta]])},)).keeping(
        ClientMemory(kept=kept)
    )
    found = own(play.play_round(start, people, Streams(0)).state)
    for i, client in enumerate(people):
        x = client.train.inputs[:, 0].double()
        gradient = float(((v - i) * x * x).mean())
        assert found[client.handle] == pytest.approx(theta - 0.1 * gradient, abs=1e-5)


def test_a_stronger_pull_keeps_own_models_closer_together(people: Cohort):
    def spread(lam: float) -> float:
        found = own(rounds(ditto(lam), [people] * 20)[-1]).values()
        return max(found) - min(found)

    spreads = [spread(lam) for lam in (0.0, 0.1, 1.0, 5.0)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < spreads[0] / 4


def test_an_own_model_that_diverges_stays_as_it_was(people: Cohort):
    wild, one = ditto(1e38, local_steps=3), people[1]
    assert own(rounds(wild, [(one,)])[-1]) == {}
    kept = {one.handle: {"personal": {"weight": torch.tensor([[0.5]])}}}
    start = wild.init(Streams(0)).keeping(ClientMemory(kept=kept))
    after = wild.play_round(start, (one,), Streams(0)).state
    assert own(after) == {one.handle: 0.5}


def test_who_leaves_takes_its_model_along(people: Cohort):
    state = rounds(ditto(0.1), [people])[-1]
    left = people[0].handle
    assert left in own(state)
    assert own(state.without([left])).keys() == own(state).keys() - {left}


def accuracy(out: Path, **method: object) -> object:
    return covey.run(config={**SMALL, **method}, out=out).summary.accuracy


def test_the_accuracy_of_a_client_is_that_of_its_own_model(tmp_path: Path):
    measured = partial(accuracy, **{"train.local_epochs": 4})
    alone = measured(tmp_path / "alone", **{"method.name": "local"})
    assert measured(tmp_path / "own", method=Ditto(lam=0)) == alone
    shared = measured(tmp_path / "shared", **{"method.name": "fedavg"})
    assert measured(tmp_path / "near", method=Ditto(lam=1)) not in (alone, shared)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"privacy.record_clip": 1.0},
            "method.name = 'ditto' needs the gradient of a batch's mean loss, but "
            "privacy.record_clip",
        ),
        (
            {"leaving.store_updates": 2},
            "leaving.store_updates = 2 needs clients' updates to be kept and "
            "calibrated, but method.name = 'ditto'",
        ),
    ],
)
def test_what_own_models_leave_no_room_for(settings: dict[str, object], said: str, tmp_path: Path):
    with pytest.raises(covey.ConfigError, match=said):
        covey.run(config={**SMALL, "method.name": "ditto", **settings}, out=tmp_path / "run")
