"""Whatever lies below a root, the list of runs says what it is, and changes nothing."""

import os
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from covey import Config, load, run
from covey.api.listing import find_runs
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, now
from registry.tiny import TINY


def contents(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder: modes, times and bytes."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b"",
        )
        for path in sorted(root.rglob("*"))
    }


def test_a_whole_run_is_described_by_its_own_ledger(put, roots):
    folder = put("deep/er/one")
    held, before = load(folder), contents(roots)
    written = max(Ledger.read(folder / "ledger.sqlite").times().values())
    later = datetime.fromisoformat(written) + timedelta(days=2)
    (entry,) = find_runs([roots], at=later)
    assert (entry.name, entry.state) == ("deep/er/one", "finished")
    assert (entry.rounds_played, entry.rounds_planned) == (3, 3)
    assert held.history.started is not None
    assert entry.method == held.history.started.method
    assert held.ledger_head.startswith(entry.ledger_head)
    assert entry.age_seconds == timedelta(days=2).total_seconds()
    assert (entry.clients, entry.open_requests) == (4, 0)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert entry.size_bytes == sum(file.stat().st_size for file in files)
    assert entry.guarantees == ()
    assert entry.guarantee_reason == held.guarantee.guarantee_reason
    assert entry.is_verified
    assert contents(roots) == before


def test_a_run_that_was_stopped_or_has_not_begun_waits(put, roots):
    folder = put("one")
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database, database:
        database.execute("DELETE FROM events WHERE round >= 2")
        database.execute("DELETE FROM clock WHERE position > (SELECT max(position) FROM events)")
    database.close()
    (entry,) = find_runs([roots])
    assert (entry.state, entry.rounds_played) == ("waiting", 2)
    (folder / "ledger.sqlite").unlink()
    killed = RunFolder.create(roots / "x", Config())  # a start that was killed
    Ledger.create(killed.ledger, now).close()
    entries = find_runs([roots])
    assert [(one.state, one.rounds_played) for one in entries] == [("waiting", 0)] * 2


def garbage(folder):
    (folder / "ledger.sqlite").write_bytes(b"not a database" * 1000)


def no_settings(folder):
    (folder / "config.toml").unlink()


def other_settings(folder):
    (folder / "config.toml").write_text("rounds = 'many'")


def flipped(folder):
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
        ((body,),) = database.execute("SELECT body FROM events WHERE position = 2")
    content = bytearray((folder / "ledger.sqlite").read_bytes())
    content[content.index(body) + 20] ^= 1
    (folder / "ledger.sqlite").write_bytes(content)


def other_kind(folder):
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database, database:
        database.execute("UPDATE clock SET written_at = 7")
        database.execute("UPDATE events SET body = x'00ff' WHERE position = 1")
    database.close()


def cut(folder):
    content = (folder / "ledger.sqlite").read_bytes()
    (folder / "ledger.sqlite").write_bytes(content[: len(content) // 2])


def an_unknown_version(folder):
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database, database:
        database.execute("UPDATE schema SET version = 999")
    database.close()


@pytest.mark.parametrize(
    "damage", [garbage, no_settings, other_settings, flipped, other_kind, cut, an_unknown_version]
)
def test_a_damaged_run_is_an_entry_with_its_fault(put, roots, damage):
    damage(put("bad"))
    put("good")
    bad, good = find_runs([roots])
    assert bad.state == "damaged"
    assert bad.reason
    assert "\n" not in bad.reason
    assert good.state == "finished"


def test_what_is_no_run_is_no_entry(roots):
    (roots / "other").mkdir()
    (roots / "other" / "config.toml").write_text("[tool]\nname = 'x'\n")
    (roots / "broken").mkdir()
    (roots / "broken" / "config.toml").write_bytes(b"\xff\x00")
    (roots / "database").mkdir()
    with closing(sqlite3.connect(roots / "database" / "ledger.sqlite")) as database:
        database.execute("CREATE TABLE t (x)")
    (roots / "pipe").mkdir()
    os.mkfifo(roots / "pipe" / "ledger.sqlite")
    (roots / "folder" / "ledger.sqlite").mkdir(parents=True)
    assert find_runs([roots]) == ()


def test_links_are_not_followed(put, roots, tmp_path):
    inside = put("inside")
    outside = inside.rename(tmp_path / "outside")
    (roots / "link").symlink_to(outside)
    (roots / "loop").symlink_to(roots)
    (roots / "half").mkdir()
    (roots / "half" / "ledger.sqlite").symlink_to(outside / "ledger.sqlite")
    (entry,) = find_runs([roots])
    assert (entry.name, entry.state) == ("half", "unreadable")
    assert "link" in entry.reason


def test_a_database_that_is_away_is_an_entry_without_its_password(put, roots):
    folder = put("one")
    url = "postgresql://me:hunter2@127.0.0.1:1/there?run=one"
    (entry,) = find_runs([url])
    assert entry.state == "unreadable"
    assert "hunter2" not in repr(entry)
    settings = (folder / "config.toml").read_text()
    away = 'url = "postgresql://me@127.0.0.1:1/there?run=one"'
    (folder / "config.toml").write_text(settings.replace('url = ""', away))
    assert find_runs([roots])[0].state == "unreadable"


def test_no_code_of_a_run_is_imported(put, roots, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = put("one")
    settings = (folder / "config.toml").read_text()
    changed = settings.replace('name = "linear"', 'name = "evil:model"')
    assert changed != settings
    (folder / "config.toml").write_text(changed)
    find_runs([roots])
    assert "evil" not in sys.modules


@pytest.fixture(scope="module")
def url(postgres, tmp_path_factory):
    place = postgres.run("listed")
    out = tmp_path_factory.mktemp("listed") / "run"
    run(config={**TINY, "rounds": 1, "ledger.url": place}, out=out)
    return place, out


def test_by_its_folder_and_by_its_url(url, tmp_path):
    place, folder = url
    (entry,) = find_runs([folder.parent])
    assert (entry.state, entry.rounds_played, entry.clients) == ("finished", 1, 4)
    (bare,) = find_runs([place])
    assert (bare.state, bare.rounds_played, bare.clients) == ("finished", 1, 4)
    assert bare.ledger_head == entry.ledger_head
    assert bare.folder is None
    assert bare.is_verified
    with Ledger.open(place, now):
        assert [entry.state for entry in find_runs([place, folder])] == ["running"] * 2
