"""Places for ledgers, and lives that end too early.

As a program, this file does a deed of another file again and again, and dies of it at
every SQL statement in turn.
"""

import os
import runpy
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import shake_128
from itertools import accumulate, count
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event

from covey.ledger.chain import Record
from covey.ledger.store import Ledger

NUMBERS = count()
"""Never the same twice: pytest may make the fixture again, and the server stays."""


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def fresh(request, tmp_path_factory) -> Callable[[], str]:
    """Gives a place without a ledger, another one each time, on each database."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("ledgers")
        return (f"{folder}/{n}.sqlite" for n in NUMBERS).__next__
    postgres = request.getfixturevalue("postgres")
    return (postgres.run(f"{n}") for n in NUMBERS).__next__


@pytest.fixture
def where(fresh: Callable[[], str]) -> str:
    """A place without a ledger."""
    return fresh()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there, for what only a file can show."""
    return tmp_path / "ledger.sqlite"


ROUNDS = tuple(
    # big enough to overflow a dying life's cache: the file itself changes before COMMIT
    [
        Record(index, "facts", {"n": n, "text": shake_128(bytes(n)).hexdigest(6000)})
        for n in range(4)
    ]
    for index in range(3)
)
NAMES = {"7f3a": "client-00001", "09bc": "client-00002"}


def noon() -> str:
    return "2030-01-01T12:00:00Z"


def live(where: str | Path) -> str:
    """Play all rounds, from wherever the last life ended, and return the head."""
    begin = Ledger.open if Ledger.exists(where) else Ledger.create
    with begin(where, noon) as ledger:
        ledger.enrol(NAMES)
        for index, records in enumerate(ROUNDS):
            last = ledger.last_round()
            if last is not None and index <= last:
                ledger.compare(index, records)
            else:
                ledger.append(index, records)
        return ledger.head()


@dataclass(frozen=True)
class Life:
    """A ledger's life: what it records, and what is told after none, one, ... rounds."""

    names: Mapping[str, str]
    rounds: Sequence[list[Record]]
    replays: Sequence[list[Record]]
    live: Callable[[str | Path], str]


@pytest.fixture(scope="session")
def life() -> Life:
    return Life(NAMES, ROUNDS, list(accumulate(ROUNDS, initial=[])), live)


Deaths = Callable[..., list[str]]


@pytest.fixture(scope="session")
def deaths() -> Deaths:
    """Do a deed in places, and die of it at every `step`-th statement, until none is left.

    Returns the places: "{}" in their name is the number of statements survived. The last
    one is of a deed that was done.
    """

    def die(deed: Callable[[str], object], places: str, step: int = 1) -> list[str]:
        done = subprocess.run(
            [sys.executable, __file__, deed.__code__.co_filename, deed.__name__, places, str(step)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return [places.format(n) for n in range(0, int(done.stdout) + 1, step)]

    return die


def die_at_every(deed: Callable[[str], object], places: str, step: int) -> int:
    """Do the deed until it is survived, and return how many statements that takes."""
    for statements in range(0, 1000, step):
        place = places.format(statements)
        if "://" not in place:
            Path(place).parent.mkdir()
        child = os.fork()
        if child == 0:
            die_at(statements)
            deed(place)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return statements
        assert os.WIFSIGNALED(status), "it failed instead of dying"
    raise AssertionError("it never ends")


def die_at(statements: int) -> None:
    """Die by SIGKILL once so many SQL statements were made, commits among them."""
    left = statements

    def count_down(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(Engine, "connect")
    def trace(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA cache_size = 2")
            # it tells of SQLite's own statements too, in the middle of a VACUUM
            connection.set_trace_callback(count_down)

    def on_a_server(connection: Connection, *_: object) -> None:
        if connection.dialect.name != "sqlite":
            count_down()

    event.listen(Engine, "before_cursor_execute", on_a_server)
    event.listen(Engine, "commit", on_a_server)


if __name__ == "__main__":
    _, file, name, places, step = sys.argv
    sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it
    print(die_at_every(runpy.run_path(file)[name], places, int(step)))  # noqa: T201
