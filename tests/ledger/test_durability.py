"""Durability by violence: this file, run as a program, dies at every SQL statement."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from covey.errors import LedgerError, LedgerLocked
from covey.ledger import Ledger, Record

ROUNDS = [
    # big enough to overflow the child's cache: the file itself changes before COMMIT
    [Record(index, "facts", {"n": n, "text": "x" * 6000}) for n in range(4)]
    for index in range(3)
]
TOLD = list(accumulate(ROUNDS, initial=[]))
NAMES = {"7f3a": "client-00001", "09bc": "client-00002"}


def noon() -> str:
    return "2030-01-01T12:00:00Z"


def begin_or_open(path: Path) -> Ledger:
    try:
        return Ledger.create(path, noon)
    except LedgerError:
        return Ledger.open(path, noon)


def live(path: Path) -> str:
    """Play all rounds, from wherever the last life ended."""
    with begin_or_open(path) as ledger:
        ledger.enrol(NAMES)
        for index, records in enumerate(ROUNDS):
            last = ledger.last_round()
            if last is not None and index <= last:
                ledger.compare(index, records)
            else:
                ledger.append(index, records)
        return ledger.head()


def live_until(path: Path, statements: int) -> None:
    """Play all rounds, but die by SIGKILL at the start of one SQL statement."""
    left = statements

    def count_down(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(Engine, "connect")
    def trace(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA cache_size = 2")
        connection.set_trace_callback(count_down)

    live(path)


def die_at_every_statement(folder: Path) -> None:
    """Leave in folder/N what a life leaves that ends before its statement N."""
    for statements in range(1000):
        home = folder / str(statements)
        home.mkdir()
        child = os.fork()
        if child == 0:
            live_until(home / "ledger.sqlite", statements)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return


@pytest.fixture(scope="module")
def remains(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What every death left behind, in the order of the statements."""
    folder = tmp_path_factory.mktemp("remains")
    subprocess.run([sys.executable, __file__, str(folder)], check=True)
    homes = sorted(folder.iterdir(), key=lambda home: int(home.name))
    return [home / "ledger.sqlite" for home in homes]


def told_by(path: Path) -> list[Record]:
    try:
        return Ledger.read(path).replay()
    except LedgerError:
        return []  # it died before there was a ledger


def test_killed_at_any_statement_all_of_a_round_is_there_or_none(
    remains: list[Path], tmp_path: Path
):
    undisturbed = live(tmp_path / "ledger.sqlite")
    interrupted = [path for path in remains if Path(f"{path}-journal").exists()]
    told = [told_by(path) for path in remains]
    assert len(remains) > 40  # statements in a life
    assert interrupted  # some died with the file half changed
    assert all(story in TOLD for story in told)
    assert [len(story) for story in told] == sorted(len(story) for story in told)
    assert told[-1] == TOLD[-1]
    assert {live(path) for path in remains} == {undisturbed}
    assert all(Ledger.read(path).replay() == TOLD[-1] for path in remains)
    assert all(Ledger.read(path).names() == NAMES for path in remains)


def test_a_reader_puts_back_what_a_dead_writer_began(
    remains: list[Path], tmp_path: Path
):
    for path in remains:
        if Path(f"{path}-journal").exists():
            shutil.copytree(path.parent, tmp_path / path.parent.name)
    for home in tmp_path.iterdir():
        assert told_by(home / "ledger.sqlite") in TOLD


def test_of_two_writers_the_second_is_locked_out_and_reading_goes_on(tmp_path: Path):
    path = tmp_path / "ledger.sqlite"
    with Ledger.create(path, noon) as first:
        first.append(0, ROUNDS[0])
        for door in (Ledger.open, Ledger.create):
            with pytest.raises(LedgerLocked, match="another one does"):
                door(path, noon)
        reader = Ledger.read(path)
        assert reader.last_round() == 0
        first.append(1, ROUNDS[1])
        assert reader.last_round() == 1
    with Ledger.open(path, noon) as second:
        second.append(2, ROUNDS[2])
    assert reader.replay() == TOLD[-1]


def test_another_process_is_locked_out_until_the_writer_dies(tmp_path: Path):
    path = tmp_path / "ledger.sqlite"
    script = (
        "import sys; from covey.ledger import Ledger\n"
        "ledger = Ledger.create(sys.argv[1], lambda: '')\n"
        "print('open', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(LedgerLocked):
            Ledger.open(path, noon)
        writer.kill()
    with Ledger.open(path, noon) as ledger:
        ledger.append(0, ROUNDS[0])


def test_an_opening_that_fails_locks_nobody_out(tmp_path: Path):
    path = tmp_path / "ledger.sqlite"
    path.write_text("no database" * 1000)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger.open(path, noon)
    path.unlink()
    Ledger.create(path, noon).close()


if __name__ == "__main__":
    die_at_every_statement(Path(sys.argv[1]))
