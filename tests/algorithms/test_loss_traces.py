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
from covey.engine.cpu import ParallelEngine
from covey.engine.recipe import REGRESSION
from covey.engine.vmap import VmapEngine
from covey.ledger.store import Ledger
from covey.membership.references import loss_drop
from covey.runs.own_records import exposed_records
from covey.runtime.states import load_state
from covey.settings.run import BuiltRun, build_run

SMALL: dict[str, Any] = {
    "rounds": 6,
    "population": {"clients": 5, "examples_per_client": 20, "minority_share": 0.25},
    "model": {"name": "linear"},
    "risk": {"name": "none"},
}


def settings(train: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return {**SMALL, "train": train, **sections}


def played(run: BuiltRun) -> ServerState:
    state = run.algorithm.init(run.streams)
    for t in range(run.config.rounds):
        clients = run.clients(run.population.clients, t)
        state = run.algorithm.round(state, clients, run.streams.at("round", t)).state
    return state


@pytest.fixture(scope="module", params=["fedavg", "ifca", "ditto"])
def both(request: pytest.FixtureRequest) -> tuple[BuiltRun, ServerState, ServerState]:
    """One run that keeps losses, played, and the state of the same without."""
    runs = [
        build_run(Config.of(settings({"keep_losses": k}, method={"name": request.param})))
        for k in (True, False)
    ]
    return runs[0], played(runs[0]), played(runs[1])


def test_no_model_changes_by_what_clients_keep(both: tuple[BuiltRun, ServerState, ServerState]):
    _, kept, plain = both
    assert model_hash(kept.clusters) == model_hash(plain.clusters)
    assert kept.assignment == plain.assignment


def test_a_row_for_every_round_and_a_column_for_every_record(
    both: tuple[BuiltRun, ServerState, ServerState],
):
    run, state, _ = both
    memory = state.kept(ClientMemory).kept
    for client in run.population.clients:
        trace = loss_trace(memory[client.handle])
        assert trace is not None
        assert trace.shape == (6, len(client.train))
        assert torch.isfinite(trace).all()


@pytest.mark.parametrize("engine", [ReferenceEngine, ParallelEngine, VmapEngine])
def test_losses_are_those_of_the_model_that_is_trained(engine: Any):
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


def test_a_record_in_no_batch_has_no_loss():
    module = torch.nn.Linear(2, 2)
    examples = Examples(torch.randn(6, 2), torch.zeros(6, dtype=torch.int64))
    recipe = Recipe(local_steps=1, batch_size=4)
    batches: list[Tensor] = []
    start = dict(module.state_dict())
    job = TrainingJob(start, examples, Streams(0), recipe, on_losses=batches.extend)
    list(ReferenceEngine(module).train([job]))
    assert int(first_losses(job, batches).isnan().sum()) == 2
    assert first_losses(job, []).isnan().all()  # of an engine that sees no losses


def test_where_no_loss_of_a_record_is_seen_none_can_be_kept():
    with pytest.raises(ConfigError, match=r"train\.keep_losses = True needs"):
        build_run(Config.of(settings({"keep_losses": True}, privacy={"record_clip": 1.0})))


def test_keeping_losses_needs_batches():
    assert Recipe(keep_losses=True).by_batch == ("keep_losses",)
    assert Recipe(keep_losses=True).apart == Recipe().apart == Recipe().by_batch == ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    for keep in (True, False):
        told = Config.of(settings({"keep_losses": keep}))
        covey.run(config=told, out=path / ("kept" if keep else "plain"))
    return path


def last_state(folder: Path) -> ServerState:
    *_, newest = sorted((folder / "checkpoints").iterdir())
    return load_state(newest)[0]


def test_the_ledger_tells_nothing_of_it(folder: Path):
    def events(name: str) -> list[tuple[int | None, str, str]]:
        with Ledger.read(folder / name / "ledger.sqlite") as ledger:
            rows = [(r.round_index, r.kind, str(r.body)) for r in ledger.replay()]
        return [each for each in rows if each[1] != "RunStarted"]

    assert events("kept") == events("plain")
    assert "losses" not in str(events("kept"))


def test_a_client_sees_its_own_records(folder: Path):
    found = exposed_records(folder / "kept", "client-00002", 0.2)
    assert (found.held, found.rounds, len(found.records)) == (16, 6, 3)
    scores = [each.score for each in found.records]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] >= found.median_score
    assert [each.rank for each in found.records] == [1, 2, 3]
    everybody = exposed_records(folder / "kept", "client-00002", 1.0)
    assert sorted(each.place for each in everybody.records) == [*range(16)]


def test_records_are_ranked_by_how_far_they_came_down_to_the_final_model(folder: Path):
    run = covey.load(folder / "kept")
    found = run.exposed_records("client-00002", 1.0)
    built = build_run(Config.of(settings({"keep_losses": True})))
    (client,) = (c for c in built.population.clients if c.name == found.client)
    state = last_state(folder / "kept")
    trace = loss_trace(state.kept(ClientMemory).kept[client.handle])
    assert trace is not None
    final = state.clusters[state.assignment[client.handle]]
    (scored,) = built.engine.score([ScoringJob(final, client.train)])
    drop = loss_drop(trace.T.double().numpy(), scored.losses.double().numpy())
    assert [each.place for each in found.records] == np.argsort(-drop).tolist()
    assert [each.score for each in found.records] == sorted(drop, reverse=True)


def test_without_the_final_model_they_are_ranked_by_the_drop_to_the_last_loss(tmp_path: Path):
    clients = {
        name: (torch.randn(12, 3, generator=torch.Generator().manual_seed(i)), labels)
        for i, (name, labels) in enumerate(
            zip("abcd", torch.arange(12).repeat(4, 1) % 2, strict=True)
        )
    }
    told = {"rounds": 4, "train": {"keep_losses": True}, "risk": {"name": "none"}}
    told["method"] = {"name": "fedavg"}
    run = covey.run(lambda: torch.nn.Linear(3, 2), clients, told, tmp_path / "own")
    apart, there = exposed_records(run.folder, "a", 1.0), run.exposed_records("a", 1.0)
    assert "last loss in training" in apart.score_meaning
    assert there.score_meaning.endswith("loss under the newest model")
    memory = last_state(run.folder).kept(ClientMemory).kept
    trace = loss_trace(memory[run.names["a"]])
    assert trace is not None
    drop = loss_drop(trace.T.double().numpy(), trace[-1].double().numpy())
    assert [each.score for each in apart.records] == sorted(drop, reverse=True)


def wards() -> dict[str, Any]:
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 12, 4, generator=draws)
    return {f"ward-{i}": (x, torch.arange(12) % 2) for i, x in enumerate(inputs)}


def test_code_that_settings_name_is_run_where_a_program_passes_the_clients(tmp_path: Path):
    told = settings({"keep_losses": True}, method={"name": "fedavg"})
    told["population"] = {}
    covey.run(clients=wards, config=told, out=tmp_path / "run")
    apart = covey.load(tmp_path / "run").exposed_records("ward-1")
    assert apart.score_meaning.endswith(".exposed_records(NAME) takes those that you pass")
    passed = covey.load(tmp_path / "run", clients=wards).exposed_records("ward-1")
    assert passed.score_meaning.endswith("loss under the newest model")


@pytest.mark.parametrize(
    ("run", "client", "share", "told"),
    [
        ("plain", "client-00002", 0.1, r"keep_losses = true"),
        ("kept", "nobody", 0.1, "client-00000"),
    ],
)
def test_it_says_why_there_is_nothing(folder: Path, run: str, client: str, share: float, told: str):
    with pytest.raises(RunError, match=told):
        exposed_records(folder / run, client, share)


def test_a_share_of_nothing_is_refused(folder: Path):
    with pytest.raises(ConfigError, match="share of records"):
        exposed_records(folder / "kept", "client-00002", 0.0)


class StopError(Exception):
    """Stands for a crash."""


def test_what_is_kept_is_the_same_after_a_crash(tmp_path: Path):
    told = settings({"keep_losses": True})

    def stop(history: Any) -> None:
        if len(history.rounds) == 4:
            raise StopError

    whole = covey.run(config=told, out=tmp_path / "whole")
    with pytest.raises(StopError):
        covey.run(config=told, out=tmp_path / "stopped", observe=stop)
    resumed = covey.resume(tmp_path / "stopped")
    assert resumed.summary.model_hash == whole.summary.model_hash
    one, other = (each.exposed_records("client-00002", 1.0) for each in (whole, resumed))
    assert one.records == other.records


def test_who_leaves_takes_its_losses_along(tmp_path: Path):
    # the rounds are played again, and everybody keeps what it sees then
    told = settings({"keep_losses": True}, method={"name": "fedavg"})
    run = covey.run(config=told, out=tmp_path / "left")
    covey.load(run.folder).forget("client-00001", answer="retrain")
    population = {**SMALL["population"], "exclude": ["client-00001"]}
    never = covey.run(config={**told, "population": population}, out=tmp_path / "never")
    with pytest.raises(RunError, match="has not left"):
        exposed_records(run.folder, "client-00001")
    left = covey.load(run.folder)
    assert left.summary.model_hash == never.summary.model_hash
    assert (
        exposed_records(run.folder, "client-00002").records
        == exposed_records(never.folder, "client-00002").records
    )
