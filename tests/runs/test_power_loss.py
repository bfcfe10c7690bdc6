"""Whatever of its unsynced changes a power cut leaves, a run goes on to the same end."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from covey import Config, load, resume, run, verify
from covey.base import files as atomic_io
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.secrets import lost_secret
from covey.runs.session import TRACES
from covey.runs.states import load_state, newest_whole_state
from runs.power import Change, Cut, Recorder, cuts, sampled

TORTURE = (pytest.mark.slow, pytest.mark.torture)
SOME = 30


class Recorded:
    """A run that was played, in which one client was forgotten, change by change."""

    def __init__(self, config: Config, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.config, self.root = config, root
        folder = root / "run"
        recorder = Recorder(root, folder / "ledger.sqlite")
        patch.setenv("XDG_CONFIG_HOME", str(root / "config"))
        patch.setattr(atomic_io, "disk", recorder)
        played = run(config=config, out=folder)
        recorder.note_ledger()
        self.played = tuple(recorder.changes)
        self.model, self.head = played.summary.model_hash, played.ledger_head
        self.leaver = min(played.names)
        played.forget(self.leaver, answer="retrain")
        recorder.note_ledger()
        self.changes = tuple(recorder.changes)
        patch.setattr(atomic_io, "disk", atomic_io.Disk())


@pytest.fixture(scope="module")
def recorded(settings, tmp_path_factory) -> Callable[[str], Recorded]:
    known: dict[str, Recorded] = {}

    def played(source: str) -> Recorded:
        if source not in known:
            config = settings(rounds=3, secrets={"source": source})
            with pytest.MonkeyPatch.context() as patch:
                known[source] = Recorded(config, tmp_path_factory.mktemp(source), patch)
        return known[source]

    return played


def check(cut: Cut, config: Config, place: Path) -> None:
    """Check that nothing is lost which was said to be there."""
    shutil.rmtree(place, ignore_errors=True)
    cut.put(place)
    folder = RunFolder(place / "run")
    if not folder.config_path.is_file():
        assert not folder.ledger_path.exists()
        RunFolder.create(folder.path, config)
        return
    assert folder.config() == config
    if not Ledger.exists(folder.ledger_path):
        assert not [name for name in TRACES if (folder.path / name).exists()]
        return
    with Ledger.read(folder.ledger_path) as ledger:
        ledger.verify()
        newest, last = (newest_whole_state(folder.checkpoints, ledger), ledger.last_round())
        after = load_state(newest)[0].round_index if newest else 0
        assert last is None or after >= min(last, config.rounds)
        assert config.secrets.source == "seeded" or not lost_secret(folder.secret_marker, ledger)
        for request in ledger.requests():
            if request.state == "done":
                proof = folder.proofs / f"{request.id}.json"
                assert verify(proof).valid
                assert not folder.superseded.exists()


def failures(chosen: Sequence[Cut], config: Config, place: Path) -> list[Cut]:
    failed: list[Cut] = []
    for cut in chosen:
        try:
            check(cut, config, place)
        except Exception:
            failed.append(cut)
    return failed


@pytest.mark.parametrize("source", ["seeded", pytest.param("os", marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [SOME, pytest.param(None, marks=TORTURE)], ids=str)
def test_nothing_that_was_recorded_is_lost(source, number, recorded, tmp_path):
    recording = recorded(source)
    every = (
        list(cuts(recording.changes))
        if number is None
        else sampled(recording.changes, number, seed=1)
    )
    for cut in every:
        check(cut, recording.config, tmp_path / "cut")


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, pytest.param(60, marks=TORTURE)], ids=str)
def test_a_run_goes_on_to_the_same_end(number, recorded, tmp_path):
    recording = recorded("seeded")
    for i, cut in enumerate(sampled(recording.played, number, seed=2)):
        cut.put(tmp_path / str(i))
        folder = tmp_path / str(i) / "run"
        if not (folder / "config.toml").is_file():
            run(config=recording.config, out=folder)
        ended = resume(folder)
        assert (ended.summary.model_hash, ended.ledger_head) == (recording.model, recording.head)


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, pytest.param(60, marks=TORTURE)], ids=str)
def test_a_leaving_goes_on_to_its_end(number, recorded, tmp_path, monkeypatch):
    recording = recorded("os")
    for i, cut in enumerate(sampled(recording.changes, number, seed=3)):
        cut.put(tmp_path / str(i))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / str(i) / "config"))
        folder = tmp_path / str(i) / "run"
        if not (folder / "config.toml").is_file():
            run(config=recording.config, out=folder)
        ended = resume(folder)
        with Ledger.read(folder / "ledger.sqlite") as ledger:
            requests = ledger.requests()
        assert {request.state for request in requests} <= {"done"}
        assert (recording.leaver in load(folder).names) == (not requests)
        assert ended.history.finished is not None


@pytest.mark.parametrize("lacking", ["sync", "sync folder"])
def test_a_writer_that_does_not_sync_is_found_out(lacking, recorded, tmp_path):
    recording = recorded("seeded")

    def is_kept(change: Change) -> bool:
        return change.kind != lacking

    unsynced = [change for change in recording.played[:40] if is_kept(change)][:12]
    assert failures(sampled(unsynced, 80, seed=4), recording.config, tmp_path / "cut")
