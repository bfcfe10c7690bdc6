"""`covey explain` writes nothing into a run's folder, and pages are their owner's alone."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import command

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
CHANGES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"})
watched: list[tuple[str, list[str]]] = []
"""The folder that is watched, and what was changed in it."""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not watched:
        return
    folder, changes = watched[0]
    path = arguments[0] if arguments else None
    inside = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(folder)
    opened = event == "open" and bool(arguments[2] & WRITING)
    if inside and (opened or event in CHANGES):
        changes.append(f"{event} {path}")


sys.addaudithook(_watch)  # it can never be taken off: it looks only while asked to


@pytest.fixture
def changes(copy_of_ran) -> Iterator[list[str]]:
    """What is changed in the copy while this test runs."""
    found: list[str] = []
    watched.append((str(copy_of_ran), found))
    yield found
    watched.clear()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_explain_changes_nothing_in_the_folder(copy_of_ran, changes):
    code, out, err = command("explain", copy_of_ran, "client-00001")
    assert code == 0, err
    assert "client-00001" in out
    assert changes == []


def test_explain_needs_no_right_to_write(copy_of_ran):
    """Root has every right, so that it is taken from the command where tests run as root."""
    drop = ["--bounding-set=-dac_override,-dac_read_search,-fowner"]
    program = "from covey.cli.app import main; main()"
    words = [sys.executable, "-c", program, "explain", str(copy_of_ran), "client-00001", "--json"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv takes the rights of root away, and is not installed")
        words = ["setpriv", *drop, *words]
    paths = [copy_of_ran, *copy_of_ran.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        for path in paths:
            path.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds_trained"] == [0, 1, 2]


def test_explain_does_not_wait_for_who_plays_the_run(copy_of_ran):
    from covey.ledger.store import Ledger

    with Ledger.open(copy_of_ran / "ledger.sqlite", lambda: "2030-01-01T12:00:00Z"):
        code, _, err = command("explain", copy_of_ran, "client-00001")
    assert code == 0, err


def test_pages_that_name_clients_are_for_their_owner_alone(copy_of_ran, tmp_path):
    page = tmp_path / "pages" / "one.html"
    assert command("explain", copy_of_ran, "client-00001", "--page", page)[0] == 0
    assert command("report", copy_of_ran)[0] == 0
    assert mode_of(page) == mode_of(copy_of_ran / "report.html") == 0o600
