"""Whatever a received folder calls a path, nothing outside of it is written or deleted."""

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import covey
from cli.conftest import command
from covey.api.listing import find_runs
from covey.api.pruning import prune, retention
from covey.base.errors import RunError
from covey.base.files import checked_json, delete_whole, path_inside, user_folder
from support.runs import small

TINY = small(train={"local_epochs": 1}, aggregation={"name": "anonymity-sets", "min_anonymity": 3})


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return covey.run(config=TINY, out=tmp_path_factory.mktemp("played") / "run").folder


@pytest.fixture
def received(played, tmp_path):
    """The run as it would come from somebody else."""
    return shutil.copytree(played, tmp_path / "root" / "received")


@pytest.fixture
def victim(tmp_path) -> Path:
    """A folder of the user's, beside the received one."""
    path = tmp_path / "victim"
    (path / "thesis").mkdir(parents=True)
    (path / "thesis" / "thesis.tex").write_text("years")
    (path / "round-00001.safetensors").write_text("another run's")
    return path


def contents(victim: Path) -> dict[str, bytes]:
    paths = [path for path in victim.rglob("*") if path.is_file()]
    return {str(path.relative_to(victim)): path.read_bytes() for path in paths}


def recorded(folder: Path, name: str = "00000001-aaaaaaaa", **more: object) -> None:
    """Write the record of a copy, as its author may write any."""
    copy: dict[str, object] = {"id": name, "what": "report", "path": "x", "sha256": ""}
    copy |= {"written": "2026-01-01T00:00:00.000+00:00", **more}
    folder.mkdir(exist_ok=True)
    (folder / "00000001-aaaaaaaa.json").write_bytes(checked_json(copy))


EVERY = (
    ("forget", "RUN", "client-00001", "--answer", "deny"),
    ("requests", "add", "client-00003", "--basis", "erasure"),
    ("requests", "answer"),
    ("report", "RUN"),
    ("export", "RUN", "--cluster", 0),
    ("resume", "RUN"),
    ("audit", "RUN"),
)
RETRAIN = ("forget", "RUN", "client-00002", "--answer", "retrain")


def answered_by_all(received: Path, commands: Sequence[tuple[object, ...]] = (RETRAIN, *EVERY)):
    """Retrain, deny, and answer over a root with the run in it."""
    root = received.parent
    for words in commands:
        where = ("--root", root, "--register", root.parent / "register")
        named = (received if word == "RUN" else word for word in words)
        _, _, err = command(*named, *(where if words[0] == "requests" else ()))
        assert "Internal error" not in err, words


@pytest.mark.parametrize(
    "path",
    [
        "baseline/../../../victim",
        "baseline/../../../victim/thesis",
        "../../victim/thesis/thesis.tex",
        "link/thesis/thesis.tex",
        "baseline/link/thesis/thesis.tex",
        "",
        ".",
        "baseline/..",
    ],
)
def test_a_record_of_a_copy_deletes_nothing_elsewhere(received, victim, path):
    before = contents(victim)
    (received / "baseline").mkdir()
    if "link" in path:
        (received / path.partition("link")[0] / "link").symlink_to(victim)
    recorded(received / "copies", path=path)
    answered_by_all(received, [RETRAIN, ("report", "RUN")])
    assert contents(victim) == before
    assert (received / "config.toml").is_file()


def test_a_record_names_no_patterns(received, victim):
    """Nor does it delete a file that covey did not write."""
    (received / "notes").mkdir()
    (received / "notes" / "page.html").write_text("mine")
    (received / "notes" / "other.txt").write_text("mine")
    recorded(received / "copies", path="notes/page.html", sha256="0" * 64, beside=["**/*"])
    answered_by_all(received)
    assert (received / "notes" / "page.html").read_text() == "mine"
    assert (received / "notes" / "other.txt").read_text() == "mine"


def test_a_record_is_named_by_its_file(received, victim):
    before = contents(victim)
    recorded(received / "copies", name="../../../victim/thesis/thesis", path="report.html")
    answered_by_all(received)
    assert contents(victim) == before


PLACES = (
    *("figures", "checkpoints", "superseded", "subtracted", "updates", "proofs", "receipts"),
    *("copies", "exports", "audit", "unacknowledged", "asking", "baseline", "tracking"),
)


@pytest.mark.parametrize("name", PLACES)
def test_a_link_in_the_folder_leads_to_no_deletion_elsewhere(received, victim, name):
    before = contents(victim)
    delete_whole(received / name)
    (received / name).symlink_to(victim)
    answered_by_all(received)
    prune(retention(find_runs([received.parent]), timedelta(0), "states"))
    prune(retention(find_runs([received.parent]), timedelta(0), "whole", with_proofs=True))
    assert contents(victim) == before


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.lock", "metrics.csv", "report.html"])
def test_no_file_is_written_through_a_link(received, victim, name):
    target = victim / "thesis" / "thesis.tex"
    (received / name).unlink(missing_ok=True)
    (received / name).symlink_to(target)
    answered_by_all(received)
    assert target.read_text() == "years"


def test_a_request_is_no_path(received, victim):
    before = contents(victim)
    covey.load(received).forget("client-00004", "retrain")
    with closing(sqlite3.connect(received / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE requests SET id = '../../../victim/thesis/thesis'")
    answered_by_all(received)
    assert contents(victim) == before


def test_a_link_is_deleted_and_not_what_it_leads_to(tmp_path, victim):
    before = contents(victim)
    (tmp_path / "link").symlink_to(victim)
    delete_whole(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    delete_whole(tmp_path / "gone")
    assert not (tmp_path / "gone").is_symlink()
    assert contents(victim) == before


@pytest.mark.parametrize(
    "relative", ["/etc/passwd", "..", "a/../b", "link/x", "", ".", "NUL", "a/com1.txt"]
)
def test_a_path_is_below_its_folder(tmp_path, victim, relative):
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(ValueError, match="must be"):
        path_inside(tmp_path, relative)


def test_a_link_that_stays_inside_is_none_that_leads_out(received):
    (received / "newest").symlink_to("checkpoints")
    assert covey.load(received).names
    inner = received / "tracking" / "wandb" / "wandb"
    inner.mkdir(parents=True)
    (inner / "debug.log").symlink_to("/tmp")  # noqa: S108 - trackers keep links of their own
    assert covey.load(received).names
    for name in ("tracking/other", "tracking/wandb/mlflow.db"):  # through which covey's would write
        (received / name).symlink_to("/tmp")  # noqa: S108
        with pytest.raises(RunError, match="leads out"):
            covey.load(received)
        (received / name).unlink()
    (received / "elsewhere").symlink_to("/tmp")  # noqa: S108
    with pytest.raises(RunError, match="leads out"):
        covey.load(received)


@pytest.fixture
def open_umask():
    """Let everything be made as open as it may be."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_folders_in_a_runs_folder_are_its_owners(received):
    run = covey.load(received)
    run.export(0)
    run.report()
    run.audit(references=2)
    modes = {path.name: path.stat().st_mode & 0o777 for path in received.iterdir() if path.is_dir()}
    assert {"exports", "figures", "audit"} <= modes.keys()
    assert {*modes.values()} == {0o700}


def test_what_a_kill_left_of_an_export_goes_with_the_next_and_with_a_resume(received):
    run = covey.load(received)
    run.export(0)
    left, other = (received / "exports" / f"{name}.unfinished" for name in ("cluster-7", "mine"))
    for go_on in (lambda: run.export(0), run.resume):
        for path in (left, other):
            path.touch()
            os.utime(path, (0, 0))
        go_on()
        assert not left.exists()
        assert other.exists()


def test_a_relative_configuration_folder_is_ignored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "config", "./config"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        assert user_folder() == tmp_path / "home" / ".config" / "covey"
