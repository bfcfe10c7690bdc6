"""Bits are flipped and files deleted: it is noticed, and what is said to be done helps."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import safetensors.torch
import torch

from covey import LedgerError, RiskEstimate, RunError, load, resume, run, verify
from covey.api.damage import examine, proof_damages
from covey.base.figure import Figure
from covey.data.source import DataProfile
from covey.ledger.store import Ledger
from covey.runs.folder import FederationMetadata, RunFolder
from covey.runs.secrets import secrets_of
from covey.runs.states import state_problem, updates_problem
from covey.settings.load import that_matter
from covey_flower.memory import MemoryFolder, NodeMemory
from runs.flips import FLIPS, changed_silently, flipped, refused

TORTURE = (pytest.mark.slow, pytest.mark.torture)
SOME = [15, pytest.param(FLIPS, marks=TORTURE)]
"""How many flips, where each takes a while to look at."""

FEDAVG = {"method": {"name": "fedavg"}}
HIDDEN = {
    "population": {"clients": 12, "audit_examples": 0},
    "risk": {"every": 2, "name": "none"},
    "aggregation": {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3},
}


def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").iterdir())


def flip(path: Path, place: int = -3) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.slow
def test_no_flip_in_a_state_or_in_stored_updates_is_silent(play):
    played = play(**FEDAVG, rounds=2, leaving={"store_updates": 1})
    folder = RunFolder(played.folder)
    updates = folder.updates / "round-00001.safetensors"
    with Ledger.read(folder.ledger) as ledger:
        state = newest(played.folder)
        for path, problem in (
            (state, lambda: state_problem(state, ledger)),
            (updates, lambda: updates_problem(folder.updates, 1, ledger.files)),
        ):
            assert not problem()
            assert not flipped(path, FLIPS, lambda seen=problem: bool(seen()))


def test_a_state_under_another_rounds_name_is_noticed(play):
    played = play()
    shutil.copy(played.folder / "checkpoints" / "round-00001.safetensors", newest(played.folder))
    with pytest.raises(RunError, match="it is the state after round 1"):
        played.export(0)


@pytest.mark.slow
def test_a_denial_on_a_damaged_state_is_one_that_verifies(play):
    played = play(**HIDDEN)
    flip(newest(played.folder))
    (answer,) = played.forget(next(iter(played.names)), answer="deny")
    verification = verify(answer.answered.proof, played.folder)
    assert verification.failed == ()
    assert answer.answered.model_hash == played.summary.model_hash


def test_lost_rounds_are_played_again_to_the_same_bits(play):
    played = play()
    model, head = played.summary.model_hash, played.ledger_head
    state = newest(played.folder)
    whole = state.read_bytes()
    flip(state)
    for call in (lambda: played.export(0), lambda: played.params(0), played.audit):
        with pytest.raises(RunError, match="covey ledger doctor"):
            call()
    (damage,) = examine(played.folder).damaged
    assert damage.path == state
    assert damage.remedy.startswith("Delete it: `covey resume` plays")
    state.unlink()
    (damage,) = examine(played.folder).damaged
    assert (damage.path, damage.problem) == (state, "it is gone")
    again = resume(played.folder)
    assert state.read_bytes() == whole
    assert (again.summary.model_hash, again.ledger_head) == (model, head)
    assert not examine(played.folder).damaged


@pytest.mark.slow
def test_a_run_with_no_whole_state_is_played_again_from_its_start(play):
    played = play()
    whole = {path: path.read_bytes() for path in (played.folder / "checkpoints").iterdir()}
    for path in whole:
        flip(path)
    with pytest.raises(RunError, match="none of 4 in"):
        resume(played.folder)
    damaged = examine(played.folder).damaged
    assert {damage.path for damage in damaged} == set(whole)
    assert all(damage.remedy.startswith("Delete it: ") for damage in damaged)
    for path in whole:
        path.unlink()
    resume(played.folder)
    assert newest(played.folder).read_bytes() == whole[newest(played.folder)]
    assert not examine(played.folder).damaged


@pytest.mark.slow
def test_a_lost_secret_brings_nobody_back(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    played = run(config=settings(rounds=2, secrets={"source": "os"}), out=tmp_path / "run")
    name = next(iter(played.names))
    played.forget(name, answer="retrain")
    marker = played.folder / "secret"
    known = marker.read_text()
    marker.write_text("0" * 16)
    with pytest.raises(RunError, match="must name the secret that began this run"):
        resume(played.folder)
    (damage,) = examine(played.folder).damaged
    assert damage.path == marker
    assert f"file in {tmp_path / 'mine' / 'covey' / 'runs'}" in damage.remedy
    marker.write_text(known)
    assert not examine(played.folder).damaged
    assert name not in resume(played.folder).names


@pytest.fixture(scope="module")
def answered(copied, settings, tmp_path_factory) -> Path:
    """The folder of a run that a client has left."""
    played = copied(settings(), tmp_path_factory.mktemp("answered") / "run")
    played.forget(next(iter(played.names)), answer="retrain")
    return played.folder


def test_no_flip_in_a_proof_or_in_its_page_is_silent(answered, tmp_path):
    folder = RunFolder(shutil.copytree(answered, tmp_path / "run"))
    (proof,) = folder.proofs.glob("*.json")
    assert not flipped(proof, FLIPS, lambda: bool(list(proof_damages(folder))))
    page = proof.with_suffix(".html")
    flip(page)
    assert [damage.path for damage in examine(folder.path).damaged] == [page]
    proof.unlink()
    (damage,) = examine(folder.path).damaged
    assert (damage.path, damage.problem) == (proof, "it is gone")


def test_no_flip_in_a_secret_is_silent(tmp_path, monkeypatch):
    from covey import Streams

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    secrets = secrets_of(Streams(1), "os", tmp_path / "secret")
    expected = (secrets.tombstone("anna"), secrets.at_round(3).secret)
    path = next((tmp_path / "covey" / "runs").iterdir())

    def noticed() -> bool:
        """A flip in the name of the check itself changes nothing that is used."""
        return refused(lambda: secrets.at_round(3)) or expected == (
            secrets.tombstone("anna"),
            secrets.at_round(3).secret,
        )

    assert not flipped(path, FLIPS, noticed)


@pytest.mark.slow
@pytest.mark.parametrize("flips", SOME)
def test_no_flip_in_a_ledger_is_silent(flips, answered):
    path = answered / "ledger.sqlite"

    def read_ledger() -> object:
        with Ledger.read(path) as ledger:
            ledger.check()
            return (
                ledger.replay(),
                ledger.names(),
                ledger.requests(),
                ledger.roster().tombstones,
                ledger.last_round(),
                ledger.files.newest_state(),
            )

    before = read_ledger()
    assert not flipped(path, flips, lambda: refused(read_ledger) or read_ledger() == before)


def test_a_damaged_ledger_is_found_and_no_run_goes_on_from_it(play):
    played = play()
    path = played.folder / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE events SET body = '{}' WHERE position = 3")
    database.close()
    (damage,) = examine(played.folder).damaged
    assert damage.path == path
    assert "position 3" in damage.problem
    with pytest.raises(LedgerError):
        resume(played.folder)


@pytest.mark.slow
def test_no_flip_in_the_settings_is_silent(play):
    played = play()
    folder = RunFolder(played.folder)

    def read_config() -> object:
        return that_matter(folder.config()), load(played.folder).ledger_head

    assert not changed_silently(folder.config_path, read_config)


def test_no_flip_in_what_is_known_of_a_federation_is_silent(tmp_path):
    folder = RunFolder(tmp_path)
    profile = DataProfile((4,), images=False, classes=2)
    FederationMetadata("run", profile, "/home").write(folder)
    path = tmp_path / "federation.json"
    assert not changed_silently(path, lambda: FederationMetadata.of(folder))


def test_no_flip_in_a_queued_request_names_another_client(tmp_path):
    folder = RunFolder(tmp_path)
    folder.queue_request("client-00001", "retrain", "erasure")
    (path,) = folder.request_queue.iterdir()

    def client() -> list[str]:
        return [request.client for request in folder.queued_requests()]

    assert not changed_silently(path, client)


def test_no_flip_in_what_a_node_keeps_is_silent(tmp_path):
    memory = MemoryFolder(tmp_path, "run")
    memory.write(NodeMemory((None, RiskEstimate(Figure(0.5, 0.1), round_index=1)), 2, 0.5))
    assert not changed_silently(tmp_path / "run.json", memory.read)
    memory.write_tensors(2, {"own": {"w": torch.rand(3, 2), "b": torch.rand(2)}})

    def tensors() -> object:
        return {
            (key, name): value.tolist()
            for key, params in memory.read_tensors(2).items()
            for name, value in params.items()
        }

    assert not changed_silently(tmp_path / "run" / "2.safetensors", tensors)


def test_what_holds_no_checksum_is_not_read(tmp_path):
    path = tmp_path / "federation.json"
    path.write_text('{"run": "run", "profile": null, "home": "/home"}')
    with pytest.raises(RunError, match="it has no checksum"):
        FederationMetadata.of(RunFolder(tmp_path))
    memory = MemoryFolder(tmp_path, "run")
    memory.write_tensors(2, {"own": {"w": torch.ones(2)}})
    bare = safetensors.torch.save({"own/w": torch.ones(2)})
    (tmp_path / "run" / "2.safetensors").write_bytes(bare)
    with pytest.raises(RunError, match="its checksum is another"):
        memory.read_tensors(2)
