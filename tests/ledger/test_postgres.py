"""What is PostgreSQL's alone: runs side by side, a lock that a server keeps, its URL."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from sqlalchemy import Engine, event, insert

from covey.errors import LedgerError, LedgerLocked
from covey.ledger import Ledger, Record
from covey.ledger.place import explained, place_of
from covey.ledger.tables import clients

NAMES = {"7f3a": "client-00001", "09bc": "client-00002"}
ROUNDS = [
    [Record(index, "facts", {"n": n, "text": "x" * 100}) for n in range(3)]
    for index in range(2)
]
TOLD = [[], ROUNDS[0], ROUNDS[0] + ROUNDS[1]]


def noon() -> str:
    return "2030-01-01T12:00:00Z"


@pytest.fixture
def where(postgres, numbers: Iterator[int]) -> str:
    """The URL of a run of this test's own."""
    return postgres.run(f"alone_{next(numbers)}")


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count()


def schema_of(where: str) -> str:
    return where.rpartition("=")[2]


def test_runs_share_a_database_and_nothing_else(where: str):
    other = f"{where}_2"
    with Ledger.create(where, noon) as one, Ledger.create(other, noon) as two:
        one.append(0, ROUNDS[0])
        two.enrol(NAMES)
        assert two.replay() == []
        assert one.names() == {}


def test_a_word_of_sql_can_name_a_run(postgres):
    if postgres.data is None:
        pytest.skip("somebody's run may have that name on a server that is not ours")
    where = replace(postgres, prefix="").run("select")
    with Ledger.create(where, noon) as ledger:
        ledger.append(0, ROUNDS[0])
        ledger.scrub()
    assert Ledger.read(where).replay() == ROUNDS[0]


@pytest.mark.parametrize(
    "query", ["", "?run=", "?run=Digits", "?run=1", '?run=a"', "?run=a&run=b"]
)
def test_a_url_names_one_run_that_can_name_a_schema(query: str):
    url = f"postgresql://covey:secret@host/runs{query}"
    with pytest.raises(LedgerError, match=r"End it with \?run=NAME") as no:
        Ledger.create(url, noon)
    assert "secret" not in str(no.value)


def test_a_database_without_this_ledger_is_named(where: str):
    for door in (Ledger.read, lambda where: Ledger.open(where, noon)):
        with pytest.raises(LedgerError, match="it holds no ledger"):
            door(where)


def test_a_stranger_s_tables_are_left_alone(postgres, where: str):
    schema = schema_of(where)
    postgres.execute(
        f'CREATE SCHEMA "{schema}"', f'CREATE TABLE "{schema}".events (mine text)'
    )
    with pytest.raises(LedgerError, match='"events" already exists'):
        Ledger.create(where, noon)
    postgres.execute(f'DROP TABLE "{schema}".events')
    Ledger.create(where, noon).close()


def test_no_server_is_one_sentence_without_the_password():
    url = "postgresql://covey:secret@127.0.0.1:1/runs?run=a&password=secret"
    for door in (Ledger.read, Ledger.exists, lambda url: Ledger.create(url, noon)):
        with pytest.raises(LedgerError, match="Check the URL") as no:
            door(url)
        assert "secret" not in str(no.value)
        assert "\n" not in str(no.value)
        assert "covey:***@127.0.0.1:1/runs?run=a" in str(no.value)


def test_without_its_driver_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"Install covey\[postgres\]"):
        Ledger.read("postgresql://host/runs?run=a")


def test_a_failure_quotes_no_client(where: str):
    Ledger.create(where, noon).close()
    place = place_of(where)
    twice = [{"handle": handle, "name": "client-00001"} for handle in NAMES]
    with (
        pytest.raises(LedgerError, match="violates unique constraint") as no,
        explained(place),
        place.writer().begin() as connection,
    ):
        connection.execute(insert(clients), twice)
    assert "client-00001" not in str(no.value)


@pytest.mark.parametrize(
    ("change", "position"),
    [
        ("UPDATE events SET body = '{}' WHERE position = 2", 2),
        ("UPDATE events SET round = NULL WHERE position = 3", 3),
        ("DELETE FROM events WHERE position = 1", 1),
    ],
    ids=["body", "round", "deleted"],
)
def test_a_change_is_detected(postgres, where: str, change: str, position: int):
    with Ledger.create(where, noon) as ledger:
        ledger.append(0, ROUNDS[0])
    postgres.execute(f'SET search_path = "{schema_of(where)}"', change)
    for door in (lambda: Ledger.read(where).verify(), lambda: Ledger.open(where, noon)):
        with pytest.raises(LedgerError, match=f"broken at position {position}:"):
            door()


def test_a_reader_cannot_write(where: str):
    Ledger.create(where, noon).close()
    place = place_of(where)
    with (
        pytest.raises(LedgerError, match="read-only transaction"),
        explained(place),
        place.reader().begin() as connection,
    ):
        connection.execute(insert(clients), [{"handle": "7f3a", "name": "one"}])


def test_of_two_writers_the_second_is_locked_out_and_reading_goes_on(where: str):
    with Ledger.create(where, noon) as first:
        first.append(0, ROUNDS[0])
        for door in (Ledger.open, Ledger.create):
            with pytest.raises(LedgerLocked, match="another one does"):
                door(where, noon)
        reader = Ledger.read(where)
        assert reader.last_round() == 0
        first.append(1, ROUNDS[1])
        assert reader.last_round() == 1
    with Ledger.open(where, noon) as second:
        assert second.replay() == TOLD[-1]


def test_who_lost_the_lock_writes_no_more(postgres, where: str):
    holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    others = postgres.execute(holders)
    with Ledger.create(where, noon) as ledger:
        ledger.append(0, ROUNDS[0])
        ((ours,),) = set(postgres.execute(holders)) - set(others)
        postgres.execute(f"SELECT pg_terminate_backend({ours}, 5000)")
        for _ in range(2):
            with pytest.raises(LedgerLocked, match="Open the ledger again"):
                ledger.append(1, ROUNDS[1])
        with Ledger.open(where, noon) as second:
            second.append(1, ROUNDS[1])


def live(where: str) -> str:
    """Play all rounds, from wherever the last life ended."""
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


def live_until(where: str, statements: int) -> None:
    """Play all rounds, but die by SIGKILL at one SQL statement or commit."""
    steps = count()

    def step(*_: object) -> None:
        if next(steps) == statements:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", step)
    event.listen(Engine, "commit", step)
    live(where)


def die_at_every_third_statement(where: str) -> None:
    """Leave in NAME_0, NAME_3, ... what a life leaves that ends before that statement."""
    for statements in count(step=3):
        child = os.fork()
        if child == 0:
            live_until(f"{where}_{statements}", statements)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            print(statements)  # noqa: T201
            return


@pytest.mark.slow
def test_killed_at_every_third_statement_all_of_a_round_is_there_or_none(postgres):
    where = postgres.run("killed")
    done = subprocess.run(
        [sys.executable, __file__, where], check=True, capture_output=True, text=True
    )
    lives = [f"{where}_{number}" for number in range(0, int(done.stdout), 3)]
    told = [Ledger.read(one).replay() if Ledger.exists(one) else [] for one in lives]
    assert 10 < len(lives) < 33
    assert all(story in TOLD for story in told)
    assert {len(story) for story in told} == {0, 3, 6}
    assert len({live(one) for one in lives}) == 1  # nobody is locked out
    assert all(Ledger.read(one).replay() == TOLD[-1] for one in lives)


if __name__ == "__main__":
    die_at_every_third_statement(sys.argv[1])
