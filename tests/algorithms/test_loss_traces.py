"""What clients keep of their records: true losses, no other model, and nothing told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import covey
from covey import (
    Config,
    ConfigError,
    Examples,
    Recipe,
    ReferenceEngine,
    RunError,
    ScoringJob,
    ServerState,
    Streams,
    TrainingJob,
)
from covey.algorithms.state import ClientMemory, first_losses, loss_trace
from covey.base.params import model_hash
from covey.engine.recipe import REGRESSION
from covey.engine.vmap import VmapEngine
from covey.ledger.store import Ledger
from covey.membership.references import loss_drop
from covey.runs.own_records import exposed_records
from covey.runtime.states import load_state
from covey.settings.run import build_run

ROUNDS = 4
SMALL: dict[str, Any] = {
    "rounds": ROUNDS,
    "population": {"clients": 5, "examples_per_client": 20, "minority_share": 0.25},
    "model": {"name": "linear"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}


def settings(train: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return {**SMALL, "train": train, **sections}


@pytest.mark.parametrize("engine", [ReferenceEngine, VmapEngine])
def test_losses_are_those_of_the_model_that_is_trained(engine):
    # a rate of next to nothing leaves the model as it is: its scores are the losses
    client = build_run(Config.of(settings({}))).population.clients[0]
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    made, start = engine(module), dict(module.state_dict())
    recipe = Recipe(local_epochs=3, batch_size=3, learning_rate=1e-12)
    batches: list[Tensor] = []
    job = TrainingJob(start, client.train, Streams(1), recipe, on_losses=batches.extend)
    list(made.train([job]))
    (scored,) = made.score([ScoringJob(start, client.train)])
    torch.testing.assert_close(first_losses(job, batches), scored.losses, atol=1e-5, rtol=1e-5)


def test_the_first_loss_in_a_round_is_the_one_that_is_kept():
    # one record, a step each time: w goes 0, 1, 1.5, so the losses w^2 / 2 from 2 to w are
    # 2, 1/2, 1/8; the first is that of the model that was sent
    module = torch.nn.Linear(1, 1, bias=False)
    start = {"weight": torch.zeros(1, 1)}
    one = Examples(torch.ones(1, 1), torch.tensor([2.0]))
    recipe = Recipe(local_epochs=3, batch_size=1, learning_rate=0.5)
    batches: list[Tensor] = []
    job = TrainingJob(start, one, Streams(0), recipe, on_losses=batches.extend)
    list(ReferenceEngine(module, REGRESSION).train([job]))
    assert [float(each) for each in batches] == [2.0, 0.5, 0.125]
    assert first_losses(job, batches).tolist() == [2.0]


def test_where_no_loss_of_a_record_is_seen_none_can_be_kept():
    with pytest.raises(ConfigError, match=r"train\.keep_losses = True needs"):
        build_run(Config.of(settings({"keep_losses": True}, privacy={"record_clip": 1.0})))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    for name in ("kept", "plain"):
        covey.run(config=settings({"keep_losses": name == "kept"}), out=path / name)
    return path


def last_state(folder: Path) -> ServerState:
    *_, newest = sorted((folder / "checkpoints").iterdir())
    return load_state(newest)[0]


def test_neither_models_nor_the_ledger_tell_what_clients_keep(folder):
    def told(name: str) -> list[tuple[int | None, str, str]]:
        with Ledger.read(folder / name / "ledger.sqlite") as ledger:
            rows = [(r.round_index, r.kind, str(r.body)) for r in ledger.replay()]
        return [each for each in rows if each[1] != "RunStarted"]

    assert told("kept") == told("plain")
    assert "losses" not in str(told("kept"))
    kept, plain = (model_hash(last_state(folder / name).clusters) for name in ("kept", "plain"))
    assert kept == plain


def test_records_are_ranked_by_how_far_they_came_down_to_the_final_model(folder):
    found = covey.load(folder / "kept").exposed_records("client-00002", 1.0)
    built = build_run(Config.of(settings({"keep_losses": True})))
    (client,) = (c for c in built.population.clients if c.name == found.client)
    state = last_state(folder / "kept")
    trace = loss_trace(state.kept(ClientMemory).kept[client.handle])
    assert trace is not None
    assert trace.shape == (ROUNDS, len(client.train))
    final = state.clusters[state.assignment[client.handle]]
    (scored,) = built.engine.score([ScoringJob(final, client.train)])
    drop = loss_drop(trace.T.double().numpy(), scored.losses.double().numpy())
    assert [each.place for each in found.records] == np.argsort(-drop).tolist()
    assert [each.score for each in found.records] == sorted(drop, reverse=True)


@pytest.mark.slow
def test_who_leaves_takes_its_losses_along(tmp_path):
    # the rounds are played again, and everybody keeps what it sees then
    told = settings({"keep_losses": True})
    run = covey.run(config=told, out=tmp_path / "left")
    run.forget("client-00001", answer="retrain")
    population = {**SMALL["population"], "exclude": ["client-00001"]}
    never = covey.run(config={**told, "population": population}, out=tmp_path / "never")
    with pytest.raises(RunError, match="has no client"):
        exposed_records(run.folder, "client-00001")
    assert covey.load(run.folder).summary.model_hash == never.summary.model_hash
    left, other = (exposed_records(each.folder, "client-00002") for each in (run, never))
    assert left.records == other.records
