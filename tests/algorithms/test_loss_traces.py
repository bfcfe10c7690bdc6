"""What clients keep of their records: true losses, no other model, and nothing told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey.algorithms import ClientMemory, ServerState
from covey.algorithms.loss_traces import (
    OWN_RECORDS,
    loss_trace,
    most_exposed,
    training_records,
    withheld,
)
from covey.build import BuiltRun, Overrides, build_run
from covey.components import Capability, conflicts
from covey.config import Config
from covey.data import Examples
from covey.engine import (
    REGRESSION,
    ParallelEngine,
    Recipe,
    ReferenceEngine,
    ScoringJob,
    TrainingJob,
)
from covey.engine.recorded_loss import RecordedJob
from covey.errors import ConfigError, RunError
from covey.ledger import Ledger
from covey.membership.loss_spreads import loss_drop
from covey.params import model_hash
from covey.rng import Streams
from covey.runs import exposed_records
from covey.runtime.state_io import load_state

SMALL: dict[str, Any] = {
    "rounds": 6,
    "population": {"clients": 5, "examples_per_client": 20, "minority_share": 0.25},
    "model": {"name": "linear"},
    "redteam": {"source": "none"},
}


def settings(train: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return {**SMALL, "train": train, **sections}


def played(run: BuiltRun) -> ServerState:
    state = run.strategy.init(run.streams)
    for t in range(run.config.rounds):
        clients = run.clients(run.population.clients, t)
        state = run.strategy.play_round(
            state, clients, run.streams.at("round", t)
        ).state
    return state


@pytest.fixture(scope="module", params=["fedavg", "ifca", "ditto"])
def both(request: pytest.FixtureRequest) -> tuple[BuiltRun, ServerState, ServerState]:
    """One run that keeps losses, played, and the state of the same without."""
    runs = [
        build_run(
            Config.of(settings({"keep_losses": k}, method={"name": request.param}))
        )
        for k in (True, False)
    ]
    return runs[0], played(runs[0]), played(runs[1])


def test_no_model_changes_by_what_clients_keep(
    both: tuple[BuiltRun, ServerState, ServerState],
):
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


@pytest.mark.parametrize("engine", [ReferenceEngine, ParallelEngine])
def test_losses_are_those_of_the_model_that_is_trained(engine: Any):
    # a rate of next to nothing leaves the model as it is: its scores are the losses
    client = build_run(Config.of(settings({}))).population.clients[0]
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    made, start = engine(module), dict(module.state_dict())
    recipe = Recipe(local_epochs=3, batch_size=3, learning_rate=1e-12)
    job = RecordedJob(TrainingJob(start, client.train, Streams(1), recipe))
    list(made.train([job.recorded]))
    (scored,) = made.score([ScoringJob(start, client.train)])
    torch.testing.assert_close(job.first_losses(), scored.losses, atol=1e-5, rtol=1e-5)


def test_the_first_loss_in_a_round_is_the_one_that_is_kept():
    # one record, a step each time: w goes 0, 1, 1.5, so the losses w^2 / 2 from 2 to w are
    # 2, 1/2, 1/8; the first is that of the model that was sent
    module = torch.nn.Linear(1, 1, bias=False)
    start = {"weight": torch.zeros(1, 1)}
    one = Examples(torch.ones(1, 1), torch.tensor([2.0]))
    recipe = Recipe(local_epochs=3, batch_size=1, learning_rate=0.5)
    job = RecordedJob(TrainingJob(start, one, Streams(0), recipe))
    list(ReferenceEngine(module, REGRESSION).train([job.recorded]))
    assert [float(each) for each in job.batches] == [2.0, 0.5, 0.125]
    assert job.first_losses().tolist() == [2.0]


def test_a_record_in_no_batch_has_no_loss():
    module = torch.nn.Linear(2, 2)
    examples = Examples(torch.randn(6, 2), torch.zeros(6, dtype=torch.int64))
    recipe = Recipe(local_steps=1, batch_size=4)
    job = RecordedJob(
        TrainingJob(dict(module.state_dict()), examples, Streams(0), recipe)
    )
    list(ReferenceEngine(module).train([job.recorded]))
    assert int(job.first_losses().isnan().sum()) == 2


def test_who_is_left_out_by_hand():
    # spreads 0, 2, 1, 0 in four records: a quarter of them is the second
    trace = torch.tensor([[1.0, 4.0, 2.0, 3.0], [1.0, 0.0, 0.0, 3.0]])
    assert most_exposed(trace, 0.25).tolist() == [False, True, False, False]
    assert most_exposed(trace, 0.26).tolist() == [False, True, True, False]
    assert most_exposed(trace[:, :1], 0.5).tolist() == [False]  # one always stays
    assert training_records({}, 3, 0.5).tolist() == [0, 1, 2]


def test_a_share_that_changes_moves_only_the_difference():
    # once out, the second loses no more losses to spread; the third would now come first
    trace = torch.tensor([[1.0, 4.0, 2.0, 3.0], [1.0, 3.5, 0.0, 2.0]])
    out = torch.tensor([False, True, False, False])
    assert most_exposed(trace, 0.25).tolist() == [False, False, True, False]
    assert most_exposed(trace, 0.25, out).tolist() == [False, True, False, False]
    assert most_exposed(trace, 0.5, out).tolist() == [False, True, True, False]
    assert most_exposed(trace, 0.0, out).tolist() == [False] * 4
    memory = {OWN_RECORDS: {"withheld": out}}
    assert training_records(memory, 4, 0.25).tolist() == [0, 2, 3]
    assert training_records(memory, 4, 0.0).tolist() == [0, 1, 2, 3]


def test_a_client_leaves_its_most_exposed_records_out_for_good():
    run = build_run(Config.of(settings({"withhold": "most-exposed 10%"})))
    first = played(run)
    assert model_hash(first.clusters) == model_hash(played(run).clusters)
    for client in run.population.clients:
        memory = first.kept(ClientMemory).kept[client.handle]
        trace, out = loss_trace(memory), withheld(memory, len(client.train))
        assert trace is not None
        assert out.sum() == 2  # of 16
        assert trace[:3].isfinite().all()
        assert trace[3:, out].isnan().all()
        assert trace[3:, ~out].isfinite().all()
        assert torch.equal(out, most_exposed(trace[:3], 0.1))


@pytest.mark.parametrize(
    "more", [{"privacy": {"record_clip": 1.0}}, {"engine": {"name": "vmap"}}]
)
def test_where_no_loss_of_a_record_is_seen_none_can_be_kept(more: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"train\.keep_losses = True needs"):
        build_run(Config.of(settings({"keep_losses": True}, **more)))


def test_only_what_changes_models_rules_anything_out():
    kept, left_out = Recipe(keep_losses=True), Recipe(keep_losses=True, withhold=0.1)
    lost = [
        frozenset().union(*(c.rules_out for c in r.claims())) for r in (kept, left_out)
    ]
    assert not lost[0]
    assert Capability.STORED_UPDATES in lost[1]
    assert not list(conflicts([*replace(kept, keep_losses=False).claims()]))


OWN = {
    "client-00001": "most-exposed 50%",
    "client-00002": "most-exposed 0%",
    "client-00003": "most-exposed 12.5%",
}


@pytest.mark.parametrize(
    ("train", "others"),
    [({"keep_losses": True}, 0), ({"withhold": "most-exposed 6.25%"}, 1)],
    ids=str,
)
def test_each_client_leaves_out_the_share_that_it_says(
    train: dict[str, Any], others: int
):
    run = build_run(Config.of(settings(train)), Overrides(withhold=OWN))
    memory = played(run).kept(ClientMemory).kept
    expected = {"client-00001": 8, "client-00002": 0, "client-00003": 2}
    for client in run.population.clients:
        out = withheld(memory[client.handle], len(client.train))
        assert out.sum() == expected.get(client.name, others)


def test_whose_share_is_nothing_trains_as_if_nobody_had_said_anything():
    told = Config.of(settings({"keep_losses": True}))
    nothing = dict.fromkeys(OWN, "most-exposed 0%")
    plain, zero, own = (
        model_hash(played(build_run(told, Overrides(withhold=each))).clusters)
        for each in (None, nothing, OWN)
    )
    assert plain == zero != own


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"train": {}}, "client-00001 leaves some out"),
        (
            {"train": {"keep_losses": True}, "unlearning": {"store_updates": 1}},
            "withhold of client-00001 rules it out",
        ),
        (
            {"train": {"keep_losses": True}, "secrets": {"source": "os"}},
            r"population\.preferences",
        ),
    ],
)
def test_a_clients_own_share_is_refused_where_it_cannot_be(
    sections: dict[str, Any], said: str
):
    told = Config.of({**SMALL, "method": {"name": "fedavg"}, **sections})
    with pytest.raises(ConfigError, match=said):
        build_run(told, Overrides(withhold=OWN))


@pytest.mark.parametrize(
    ("withhold", "said"),
    [
        ({"client-00001": "most-exposed 51%"}, "client-00001: expected a share of 0%"),
        ({"client-00001": 0.02}, "most-exposed 2%"),
        ({"zoe": "most-exposed 2%"}, "'zoe'"),
        ("most-exposed 2%", "dict of texts"),
    ],
)
def test_what_says_no_share_of_a_client_is_refused(
    withhold: Any, said: str, pytestconfig: pytest.Config
):
    if pytestconfig.getoption("jaxtyping_packages") and "-00001" not in said:
        pytest.skip("where types are checked, other types do not come so far")
    told = Config.of(settings({"keep_losses": True}))
    with pytest.raises(ConfigError, match=said):
        build_run(told, Overrides(withhold=withhold))


@pytest.mark.parametrize(
    "told", ["most-exposed", "2%", "most-exposed 50.5%", "most-exposed -1%", "all"]
)
def test_a_share_that_is_none_is_refused(told: str):
    with pytest.raises(ConfigError, match="a share of 0% to 50% like"):
        Config.of(settings({"withhold": told}))


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


def test_without_the_final_model_they_are_ranked_by_the_drop_to_the_last_loss(
    tmp_path: Path,
):
    clients = {
        name: (torch.randn(12, 3, generator=torch.Generator().manual_seed(i)), labels)
        for i, (name, labels) in enumerate(
            zip("abcd", torch.arange(12).repeat(4, 1) % 2, strict=True)
        )
    }
    told = {"rounds": 4, "train": {"keep_losses": True}, "redteam": {"source": "none"}}
    told["method"] = {"name": "fedavg"}
    run = covey.run(lambda: torch.nn.Linear(3, 2), clients, told, tmp_path / "own")
    apart, there = exposed_records(run.folder, "a", 1.0), run.exposed_records("a", 1.0)
    assert "last loss in training" in apart.score_told
    assert there.score_told.endswith("loss under the newest model")
    memory = last_state(run.folder).kept(ClientMemory).kept
    trace = loss_trace(memory[run.names["a"]])
    assert trace is not None
    drop = loss_drop(trace.T.double().numpy(), trace[-1].double().numpy())
    assert [each.score for each in apart.records] == sorted(drop, reverse=True)


def wards() -> dict[str, Any]:
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 12, 4, generator=draws)
    return {f"ward-{i}": (x, torch.arange(12) % 2) for i, x in enumerate(inputs)}


def test_code_that_settings_name_is_run_where_a_program_passes_the_clients(
    tmp_path: Path,
):
    told = settings({"keep_losses": True}, method={"name": "fedavg"})
    told["population"] = {}
    covey.run(clients=wards, config=told, out=tmp_path / "run")
    apart = covey.load(tmp_path / "run").exposed_records("ward-1")
    assert apart.score_told.endswith(".exposed_records(NAME) takes those that you pass")
    passed = covey.load(tmp_path / "run", clients=wards).exposed_records("ward-1")
    assert passed.score_told.endswith("loss under the newest model")


@pytest.mark.parametrize(
    ("run", "client", "share", "told"),
    [
        ("plain", "client-00002", 0.1, r"keep_losses = true"),
        ("kept", "nobody", 0.1, "client-00000"),
    ],
)
def test_it_says_why_there_is_nothing(
    folder: Path, run: str, client: str, share: float, told: str
):
    with pytest.raises(RunError, match=told):
        exposed_records(folder / run, client, share)


def test_a_share_of_nothing_is_refused(folder: Path):
    with pytest.raises(ConfigError, match="share of records"):
        exposed_records(folder / "kept", "client-00002", 0.0)


class StopError(Exception):
    """Stands for a crash."""


def test_who_leaves_records_out_ends_the_same_after_a_crash(tmp_path: Path):
    file, told = tmp_path / "who.csv", settings({"withhold": "most-exposed 10%"})
    rows = ("name,risk_threshold,withhold", "client-00001,0.6,most-exposed 25%")
    file.write_text("\n".join(rows))
    told["population"] = {**SMALL["population"], "preferences": str(file)}

    def stop(history: Any) -> None:
        if len(history.rounds) == 4:
            raise StopError

    whole = covey.run(config=told, out=tmp_path / "whole")
    with pytest.raises(StopError):
        covey.run(config=told, out=tmp_path / "stopped", observe=stop)
    file.write_text("\n".join(rows).replace("25%", "50%"))
    with pytest.raises(RunError, match=r"who\.csv"):
        covey.resume(tmp_path / "stopped")
    file.write_text("\n".join(rows))
    resumed = covey.resume(tmp_path / "stopped")
    assert resumed.summary["model_hash"] == whole.summary["model_hash"]


def test_who_leaves_takes_its_losses_along(tmp_path: Path):
    # the rounds are played again, and everybody decides anew, from what it sees then
    told = settings({"withhold": "most-exposed 10%"}, method={"name": "fedavg"})
    run = covey.run(config=told, out=tmp_path / "left")
    covey.load(run.folder).forget("client-00001", answer="retrain")
    population = {**SMALL["population"], "exclude": ["client-00001"]}
    never = covey.run(config={**told, "population": population}, out=tmp_path / "never")
    with pytest.raises(RunError, match="has not left"):
        exposed_records(run.folder, "client-00001")
    left = covey.load(run.folder)
    assert left.summary["model_hash"] == never.summary["model_hash"]
    assert (
        exposed_records(run.folder, "client-00002").records
        == exposed_records(never.folder, "client-00002").records
    )
