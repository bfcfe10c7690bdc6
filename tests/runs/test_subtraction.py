"""A client that is subtracted: heads are, bit for bit, those of everybody else's sums."""

import json
from pathlib import Path

import pytest
import torch

import covey
from algorithms.playing import changed
from covey import Config, ReturningClient, RunError, load, resume, run, verify
from covey.base.events import ClientsAssigned, ModelAttacked, RunRolledBack
from covey.base.params import model_hash
from covey.ridge.head import ClusterSums
from covey.runs import head_attacks
from covey.runs.folder import RunFolder, rounds_in
from covey.runs.states import load_state
from covey.settings.run import build_run
from recorded import assert_nowhere, facts, requests_of
from runs.conftest import excluding
from runs.ridge_runs import RIDGE, computed, held_by, model_of

ONE, OTHER = "client-00003", "client-00005"


@pytest.fixture(scope="module")
def config():
    return Config.of(RIDGE)


@pytest.fixture
def folder(config, copied, tmp_path):
    copied(config, tmp_path / "run")
    return tmp_path / "run"


def left(folder: Path, *clients, answer="subtract", **options):
    return load(folder).forget(clients, answer, **options)


def test_the_heads_are_those_of_everybody_elses_sums(folder, config):
    before, handle = model_of(folder), load(folder).names[ONE]
    done = left(folder, ONE, OTHER)
    expected = computed(folder, held_by(config, ONE, OTHER))
    assert model_of(folder) == expected != before
    for answer in done:
        proof = json.loads(answer.answered.proof.read_text())
        assert proof["answer"] == "subtract"
        assert proof["model_after"] == expected
        lost = [s["clients_before"] - s["clients_after"] for s in proof["subtracted"]]
        assert sum(lost) == 2
        verification = verify(
            answer.answered.proof, folder, name_and_salt=(answer.client, answer.answered.salt)
        )
        assert [c.name for c in verification.checks if not c.ok] == ["trust"]
    assert facts(folder, RunRolledBack) == [RunRolledBack(2, 3, "subtracted")]
    run_folder = RunFolder(folder)
    assert rounds_in(run_folder.checkpoints) == (2,)
    assert not run_folder.subtracted.exists()
    assert not run_folder.superseded.exists()
    assert_nowhere(folder, ONE)
    assert_nowhere(run_folder.checkpoints, handle)


@pytest.mark.slow
def test_erasure_and_auto_take_the_subtraction_and_a_stronger_answer_follows(folder, config, whole):
    plan = load(folder).plan(ONE)
    assert plan.chosen is not None
    assert plan.chosen.answer == "subtract"
    (done,) = left(folder, ONE, answer="auto", basis="erasure")
    assert done.answered.option.answer == "subtract"
    back = ReturningClient(ONE, done.answered.salt)
    with pytest.raises(RunError, match="found a subtraction"):
        left(folder, back)
    (again,) = left(folder, back, answer="auto", basis="erasure")
    assert again.answered.option.answer == "retrain"
    never = whole(excluding(config, ONE)).summary.model_hash
    assert again.answered.model_hash == never
    assert load(folder).summary.model_hash == never


@pytest.mark.slow
def test_a_run_that_is_not_over_goes_on_without_the_client(config, cut, tmp_path):
    settings = config.model_dump()
    settings["train"]["participation"] = 0.6
    started = run(config=Config.of(settings), out=tmp_path / "run").folder
    cut(started, 2)
    (done,) = left(started, ONE)
    assert done.answered.option.first_replayed_round == 1
    assert load(started).history.finished is None
    ended = resume(started)
    assert ended.history.finished is not None
    last = load_state(RunFolder(started).checkpoints / "round-00002.safetensors")[0]
    known, records = last.get_state(ClusterSums), build_run(Config.of(settings)).records
    assert records is not None
    by_handle = {c.handle: c for c in build_run(Config.of(settings)).population.clients}
    assert known.is_whole
    for j, cluster_sum in enumerate(known.sums):
        members = [by_handle[h].train for h, own in known.counted.items() if own == j]
        d = cluster_sum.targets.shape[0]
        assert cluster_sum == records.sums(members, d)


PROGRAM = """
from covey import load

folder, *clients = words
load(folder).forget(clients, "subtract")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "calls"),
    [
        ("after keep", 0),  # and nothing recorded
        ("after append", 0),  # recorded, and no state of it
        ("before answered", 1),  # one of two is signed
    ],
)
def test_a_kill_in_the_middle_is_finished_by_resuming(folder, config, killed, where, calls):
    killed(PROGRAM, where, calls, folder, ONE, OTHER)
    resume(folder)
    assert model_of(folder) == computed(folder, held_by(config, ONE, OTHER))
    assert [state for state, _ in requests_of(folder)] == ["done", "done"]
    proofs = sorted((folder / "proofs").glob("*.json"))
    assert len(proofs) == 2
    for proof in proofs:
        assert verify(proof, folder).failed == ()
    assert not RunFolder(folder).subtracted.exists()


def test_in_whatever_order_clients_leave_sums_and_heads_are_those_of_who_stays(config):
    built = build_run(config)
    clients, streams = built.population.clients, built.streams
    state = built.algorithm.round(
        built.algorithm.init(streams), built.clients(clients), streams.at("round", 0)
    ).state
    subtraction, records = built.algorithm, built.records
    assert records is not None
    full = state.get_state(ClusterSums)
    d, generator = len(full.sums[0].targets), torch.Generator().manual_seed(0)
    by_handle = {c.handle: c.train for c in clients}
    for _ in range(20):
        now = state
        order = torch.randperm(len(clients), generator=generator).tolist()
        gone = order[: int(torch.randint(1, len(clients), (1,), generator=generator))]
        while gone:
            size = int(torch.randint(1, len(gone) + 1, (1,), generator=generator))
            batch, gone = gone[:size], gone[size:]
            leavers = tuple(clients[i] for i in batch)
            now = subtraction.without(now, built.clients(leavers))
        known = now.get_state(ClusterSums)
        assert known.is_whole
        members = list(known.counted.items())
        anew = tuple(
            records.sums((by_handle[h] for h, own in members if own == j), d) for j in range(2)
        )
        assert known.sums == anew
        chosen = ClientsAssigned(dict(now.assignment), "clients")
        present = tuple(c for c in clients if c.handle in now.assignment)
        unknown = now.with_state(known.model_copy(update={"clients": -1}))  # its sums are made anew
        from_sums, direct = (
            subtraction.solve(server_state, chosen, built.clients(present)).state
            for server_state in (now, unknown)
        )
        assert model_hash(from_sums.clusters) == model_hash(direct.clusters)


def attacks_by(run: covey.Run, attack: str) -> list[ModelAttacked]:
    return [one for one in run.history.attacks if one.estimate.source == attack]


@pytest.mark.slow
def test_nobody_is_protected_by_an_attack_that_is_too_large_to_run(tmp_path, monkeypatch):
    """The weaker attack is printed, but whoever could run the stronger one knows."""
    monkeypatch.setattr(head_attacks, "MAX_POOL", 100)
    people = {"clients": 12, "examples_per_client": 20, "audit_examples": 400}
    one = {"num_clusters": 1, "pooling": 0.0, "regularisation": 1.0}
    settings = changed(RIDGE, population=people, method=one)
    run = covey.run(config=Config.of(settings), out=tmp_path / "run")
    assert attacks_by(run, "weights") == []
    assert attacks_by(run, "population")[0].estimate.risk < 1
    assert [attack.estimate.risk for attack in attacks_by(run, "bound")] == [1.0] * 12
    assert run.summary.violations.count == 12
