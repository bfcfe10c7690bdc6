"""A client that is subtracted: heads are, bit for bit, those of everybody else's sums."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from covey import Config, Returning, RunError, load, resume, run, verify
from covey.base.events import ClientsAssigned, HeadsSolved, RunRolledBack
from covey.base.params import model_hash
from covey.engine.fixed_features import params_of
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import WEIGHT_STEPS
from covey.runtime.folder import RunFolder, rounds_in
from covey.runtime.states import load_state
from covey.settings.run import build_run
from recorded import assert_nowhere, facts, requests_of
from runtime.solved_runs import POOLING, SOLVED, model_of

ONE, OTHER, THIRD = "client-00003", "client-00005", "client-00001"


@pytest.fixture(scope="module")
def config():
    return Config.of(SOLVED)


@pytest.fixture
def folder(config, copied, tmp_path):
    copied(config, tmp_path / "run")
    return tmp_path / "run"


def left(folder: Path, *clients, answer="subtract", **options):
    return load(folder).forget(clients, answer, **options)


def computed(folder: Path, whole: Path, *gone: str) -> str:
    """The heads of sums over those who stay, in the clusters that were first recorded."""
    built = build_run(RunFolder.existing(folder).config())
    chosen: dict[str, int] = {}
    for each in facts(whole, ClientsAssigned):
        chosen |= each.clusters if each.by != "final" else {}
    stay = [c for c in built.population.clients if c.name not in gone]
    weight, records = WEIGHT_STEPS, built.records
    fresh = built.algorithm.init(built.streams).clusters
    d = fresh[0]["head.weight"].shape[1] + 1
    assert records is not None
    sums = tuple(
        records.sums(((c.train, weight) for c in stay if chosen[c.handle] == j), d)
        for j in range(2)
    )
    counted = {c.handle: (chosen[c.handle], weight) for c in stay}
    known = ClusterSums(pooling=(POOLING,) * 2, regularisation=(0.5,) * 2)
    known = known.of(sums, counted)
    in_each = known.clients_per_cluster()
    heads = (params_of(known.head(j).theta) if in_each[j] else fresh[j] for j in range(2))
    return model_hash(tuple(heads))


@pytest.mark.parametrize("gone", [(ONE,), (ONE, OTHER, THIRD)])
def test_the_heads_are_those_of_everybody_elses_sums(folder, config, whole, gone):
    before = whole(config).folder
    done = left(folder, *gone)
    expected = computed(folder, before, *gone)
    assert model_of(folder) == expected
    assert {each.answered.model_hash for each in done} == {expected}
    assert expected != model_of(before)
    for each in done:
        told = json.loads(each.answered.proof.read_text())
        assert told["answer"] == "subtract"
        assert told["model_after"] == expected
        lost = [s["clients_before"] - s["clients_after"] for s in told["subtracted"]]
        assert sum(lost) == len(gone)
        found = verify(each.answered.proof, folder, name_and_salt=(each.client, each.answered.salt))
        assert [c.name for c in found.checks if not c.ok] == ["trust"]
    assert facts(folder, RunRolledBack) == [RunRolledBack(2, 3, "subtracted")]


def test_the_order_in_which_clients_leave_changes_no_bit(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    for one in (ONE, OTHER):
        left(folder, one)
    for one in (OTHER, ONE):
        left(other, one)
    together = model_of(folder)
    assert model_of(other) == together
    assert load(folder).summary.left == {"subtract": 2}
    last = [RunFolder(each).checkpoints / "round-00002.safetensors" for each in (folder, other)]
    a, b = (load_state(path)[0] for path in last)
    assert a.kept(ClusterSums).sums == b.kept(ClusterSums).sums


def test_nothing_of_the_client_is_in_the_folder_afterwards(folder):
    handle = load(folder).names[ONE]
    left(folder, ONE)
    kept = RunFolder(folder)
    assert rounds_in(kept.checkpoints) == (2,)
    assert not kept.subtracted.exists()
    assert not kept.superseded.exists()
    assert_nowhere(folder, ONE)
    assert_nowhere(kept.checkpoints, handle)


def test_erasure_and_auto_take_the_subtraction_and_a_stronger_answer_follows(
    folder, config, tmp_path
):
    plan = load(folder).plan(ONE)
    assert plan.chosen is not None
    assert plan.chosen.answer == "subtract"
    (done,) = left(folder, ONE, answer="auto", basis="erasure")
    assert done.answered.option.answer == "subtract"
    back = Returning(ONE, done.answered.salt)
    with pytest.raises(RunError, match="a subtraction is none"):
        left(folder, back)
    (again,) = left(folder, back, answer="auto", basis="erasure")
    assert again.answered.option.answer == "retrain"
    never = without(config, tmp_path / "never", ONE)
    assert again.answered.model_hash == never
    assert load(folder).summary.model_hash == never


def test_a_retraining_is_a_run_that_never_met_the_client(folder, config, tmp_path):
    (done,) = left(folder, ONE, answer="retrain")
    assert done.answered.model_hash == without(config, tmp_path / "never", ONE)


def without(config: Config, out: Path, *clients: str) -> str:
    told = config.model_dump()
    told["population"]["exclude"] = list(clients)
    return run(config=Config.of(told), out=out).summary.model_hash or ""


def test_a_cluster_that_nobody_is_left_in_begins_anew(tmp_path):
    settings = {**SOLVED, "rounds": 1}
    settings["population"] = {**SOLVED["population"], "minority_share": 0.125}
    settings["method"] = {"name": "solved", "initialisation": "groups"}
    made = run(config=Config.of(settings), out=tmp_path / "run")
    built = build_run(RunFolder(made.folder).config())
    few = [c.name for c in built.population.clients if c.group == 1]
    assert bool(made.params(1)["head.weight"].any())
    done, *_ = made.forget(few, "subtract")
    assert not bool(made.params(1)["head.weight"].any())
    assert facts(made.folder, HeadsSolved)[-1].clients == (8 - len(few), 0)
    assert done.answered.model_changed


def test_a_run_that_is_not_over_goes_on_without_the_client(config, cut, tmp_path):
    told = config.model_dump()
    told["train"]["participation"] = 0.6
    started = run(config=Config.of(told), out=tmp_path / "run").folder
    cut(started, 2)
    (done,) = left(started, ONE)
    assert done.answered.option.first_replayed_round == 1
    assert load(started).history.finished is None
    ended = resume(started)
    assert ended.history.finished is not None
    last = load_state(RunFolder(started).checkpoints / "round-00002.safetensors")[0]
    known, records = last.kept(ClusterSums), build_run(Config.of(told)).records
    assert records is not None
    by_handle = {c.handle: c for c in build_run(Config.of(told)).population.clients}
    assert known.is_whole
    for j, each in enumerate(known.sums):
        members = [(by_handle[h].train, w) for h, (c, w) in known.counted.items() if c == j]
        d = each.targets.shape[0]
        assert each == records.sums(members, d)


PROGRAM = """
from covey import load

folder, *clients = words
load(folder).forget(clients, "subtract")
"""
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("where", "calls"),
    [
        pytest.param("before keep", 0, marks=SLOW),
        pytest.param("after keep", 0, marks=SLOW),  # and nothing recorded
        pytest.param("after serve", 0, marks=SLOW),
        pytest.param("before delete", 0, marks=SLOW),
        pytest.param("after delete", 0, marks=SLOW),
        ("after append", 0),  # recorded, and no state of it
        pytest.param("before save", 0, marks=SLOW),
        pytest.param("after save", 0, marks=SLOW),
        pytest.param("before answered", 0, marks=SLOW),
        pytest.param("before answered", 1, marks=SLOW),  # one of two is signed
    ],
)
def test_a_kill_in_the_middle_is_finished_by_resuming(folder, config, whole, killed, where, calls):
    killed(PROGRAM, where, calls, folder, ONE, OTHER)
    resume(folder)
    assert model_of(folder) == computed(folder, whole(config).folder, ONE, OTHER)
    assert [state for state, _ in requests_of(folder)] == ["done", "done"]
    proofs = sorted((folder / "proofs").glob("*.json"))
    assert len(proofs) == 2
    for proof in proofs:
        assert verify(proof, folder).failed == ()
    assert not RunFolder(folder).subtracted.exists()


def flip(path: Path) -> None:
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)


@pytest.mark.parametrize(
    "damage", [Path.unlink, pytest.param(flip, marks=SLOW)], ids=["lost", "flipped"]
)
def test_sums_that_are_lost_are_made_anew_with_the_same_bits(
    folder, config, whole, killed, damage: Callable[[Path], None]
):
    killed(PROGRAM, "after delete", 0, folder, ONE)
    (kept,) = RunFolder(folder).subtracted.iterdir()
    other = shutil.copytree(folder, folder.with_name("whole"))
    damage(kept)
    resume(folder)
    resume(other)
    assert model_of(folder) == computed(folder, whole(config).folder, ONE)
    names = ("subtracted", "checkpoints/round-00002.safetensors")
    assert not any((each / names[0]).exists() for each in (folder, other))
    one, same = (load_state(each / names[1])[0] for each in (folder, other))
    assert model_hash(one.clusters) == model_hash(same.clusters)
    assert one.assignment == same.assignment
    assert one.kept(ClusterSums).sums == same.kept(ClusterSums).sums


def test_any_byte_that_is_flipped_in_the_proof_is_noticed(folder):
    (done,) = left(folder, ONE)
    written = done.answered.proof.read_bytes()
    torn = folder / "torn.json"
    for at in range(0, len(written), max(1, len(written) // 60)):
        flipped = bytearray(written)
        flipped[at] ^= 1
        torn.write_bytes(flipped)
        assert not verify(torn, folder).valid, at


def test_in_whatever_order_clients_leave_sums_and_heads_are_those_of_who_stays(config):
    built = build_run(config)
    clients, streams = built.population.clients, built.streams
    state = built.algorithm.round(
        built.algorithm.init(streams), built.clients(clients), streams.at("round", 0)
    ).state
    subtraction, records = built.algorithm, built.records
    assert records is not None
    full = state.kept(ClusterSums)
    d, generator = full.targets[0].shape[0], torch.Generator().manual_seed(0)
    by_handle = {c.handle: c.train for c in clients}
    for _ in range(200):
        now = state
        order = torch.randperm(len(clients), generator=generator).tolist()
        gone = order[: int(torch.randint(1, len(clients), (1,), generator=generator))]
        while gone:
            size = int(torch.randint(1, len(gone) + 1, (1,), generator=generator))
            batch, gone = gone[:size], gone[size:]
            leavers = tuple(clients[i] for i in batch)
            now = subtraction.without(now, built.clients(leavers))
        known = now.kept(ClusterSums)
        assert known.is_whole
        members = list(known.counted.items())
        anew = tuple(
            records.sums(((by_handle[h], w) for h, (c, w) in members if c == j), d)
            for j in range(2)
        )
        assert known.sums == anew
        chosen = ClientsAssigned(dict(now.assignment), "clients")
        there = tuple(c for c in clients if c.handle in now.assignment)
        solved = subtraction.solve(now, chosen, built.clients(there), streams)
        direct = subtraction.solve(
            now.keeping(replace_sums(known)), chosen, built.clients(there), streams
        )
        assert model_hash(solved.state.clusters) == model_hash(direct.state.clusters)


def replace_sums(known: ClusterSums) -> ClusterSums:
    """The same clients, whose sums nobody knows: they are made anew."""
    return known.model_copy(update={"clients": -1})
