"""Files that are damaged, or that somebody else wrote: each is one clear sentence."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import shake_128
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from covey import LedgerError
from covey.base.files import bounded, stopping
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from ledger.conftest import noon

FACTS = [
    Record(0, "cohort_sampled", {"clients": ["7f3a", "09bc"]}),
    Record(0, "risk_measured", {"cluster": 0, "risk": 0.625}),
    Record(0, "clients_assigned", {"assignment": [0, 1]}),
]
COLUMNS = ["position", "round", "kind", "body", "hash"]
NOBODYS_USER_ID = 65534


def open_to_write(path: Path) -> Ledger:
    return Ledger.open(path, noon)


def written(folder: str | Path) -> Path:
    path = Path(folder) / "ledger.sqlite"
    with Ledger.create(path, noon) as ledger:
        ledger.append(0, FACTS)
    return path


@contextmanager
def as_database(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.commit()
    connection.close()


@contextmanager
def without_privileges() -> Iterator[None]:
    """Permissions mean nothing to root, so be somebody else for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODYS_USER_ID)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.sampled_from(COLUMNS), st.integers(0), st.integers(0, 7))
def test_flipping_any_stored_bit_of_an_event_is_detected(position, column, place, bit):
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder)
        with as_database(path) as database:
            where = f"FROM events WHERE position = {position}"
            ((value,),) = database.execute(f"SELECT {column} {where}").fetchall()
            database.execute(
                f"UPDATE events SET {column} = "  # noqa: S608
                + ("CAST(? AS TEXT)" if isinstance(value, str) else "?")
                + " WHERE position = ?",
                (flipped(value, place, bit), position),
            )
        for door in (Ledger.read, open_to_write):
            try:
                with door(path) as ledger:
                    replayed = ledger.replay()
            except LedgerError:
                continue
            assert column == "body"  # some bits of a compressed text say nothing
            assert replayed == FACTS


def flipped(value: int | str | bytes, place: int, bit: int) -> int | bytes:
    if isinstance(value, int):
        return value ^ (8 << (place * 8 + bit) % 50)  # never another event's position
    data = bytearray(value.encode() if isinstance(value, str) else value)
    data[place % len(data)] ^= 1 << bit
    return bytes(data)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**9), st.integers(0, 7))
def test_a_flipped_bit_of_the_file_never_changes_the_history(place: int, bit: int):
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder)
        data = bytearray(path.read_bytes())
        data[place % len(data)] ^= 1 << bit
        path.write_bytes(data)
        try:
            replayed = Ledger.read(path).replay()
        except LedgerError:
            return
        assert replayed == FACTS[: len(replayed)]  # a lost tail leaves a whole, shorter chain


def no_database(path: Path) -> None:
    path.write_text("round,kind\n" * 1000)


def of_another_version(path: Path) -> None:
    with as_database(written(path.parent)) as database:
        database.execute("UPDATE schema SET version = 7")


@pytest.mark.parametrize("door", [open_to_write, Ledger.read])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "must be at .* found none"),
        (no_database, "file is not a database"),
        (Path.touch, "must hold a ledger, found none"),
        (of_another_version, r"of format 13, found 7: .* have to be played again"),
    ],
)
def test_what_is_no_ledger_is_named_and_made_by_no_reader(path, make, said, door):
    make(path)
    existed = path.exists()
    with pytest.raises(LedgerError, match=said):
        door(path)
    assert path.exists() is existed


def test_a_read_only_file_can_be_read_and_not_written():
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder)
        path.with_suffix(".lock").chmod(0o666)
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        with without_privileges():
            assert Ledger.read(path).replay() == FACTS
            with pytest.raises(LedgerError, match="readonly database"):
                Ledger.open(path, noon)
        Path(folder).chmod(0o755)


def test_a_full_disk_takes_nothing_of_the_round(tmp_path: Path):
    path = written(tmp_path)

    def fill(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # means: no page more

    big = [Record(1, "more", {"text": shake_128(b"big").hexdigest(5000)})] * 4
    with Ledger.open(path, noon) as ledger:
        event.listen(Engine, "connect", fill)
        try:
            with pytest.raises(LedgerError, match="disk is full"):
                ledger.append(1, big)
        finally:
            event.remove(Engine, "connect", fill)
        assert ledger.replay() == FACTS
        ledger.append(1, big)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
TABLES = {
    "schema": "i AS version",
    "events": "i AS position, 0 AS round, '' AS kind, '' AS body, '' AS hash",
    "clients": "i AS handle, '' AS name, '' AS key",
    "clock": "i AS position, '' AS written_at",
    "requests": "i AS number, i AS id",
    "tombstones": "i AS mark",
    "files": "i AS name, '' AS hash",
    "states": "i AS hash, 0 AS position",
}
OTHERS = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON clock BEGIN DELETE FROM clients; END",
    "table": "CREATE TABLE more (x)",
    "index": "CREATE INDEX more ON events (hash)",
    "generated column": "ALTER TABLE files ADD COLUMN more TEXT AS (hex(zeroblob(100000000)))",
    "virtual table": "CREATE VIRTUAL TABLE more USING fts5(x)",
    "lost index": "DROP INDEX events_by_kind",
}


@pytest.fixture
def ledger(tmp_path) -> Path:
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path, lambda: "2026-01-01T00:00:00.000+00:00").close()
    return path


def opened(path: Path) -> None:
    """Open a ledger as all commands do."""
    for door in (Ledger.read, lambda path: Ledger.open(path, str)):
        with pytest.raises(LedgerError, match="nothing else"), door(path) as ledger:
            ledger.replay()


@pytest.mark.parametrize("table", TABLES)
def test_an_endless_view_is_no_table(ledger, table):
    with closing(sqlite3.connect(ledger)) as place, place:
        place.execute(f"DROP TABLE {table}")
        place.execute(f"CREATE VIEW {table} AS {ENDLESS} {TABLES[table]} FROM n")
    opened(ledger)


@pytest.mark.parametrize("what", OTHERS)
def test_what_covey_did_not_lay_out_is_refused(ledger, what):
    with closing(sqlite3.connect(ledger)) as place, place:
        place.execute(OTHERS[what])
    opened(ledger)


def test_a_connection_ends(tmp_path):
    """Also where every table is covey's: by time, by size, and where the process is to stop."""
    query = f"{ENDLESS} count(*) FROM n"
    refused = pytest.raises(sqlite3.OperationalError, match="interrupted")
    with closing(bounded(sqlite3.connect(tmp_path / "one"), seconds=0)) as one, refused:
        one.execute(query)
    with closing(bounded(sqlite3.connect(tmp_path / "one"))) as one:
        with pytest.raises(sqlite3.DataError, match="too big"):
            one.execute("SELECT zeroblob(500000000)").fetchall()
        stopping.set()
        try:
            with pytest.raises(sqlite3.OperationalError, match="interrupted"):
                one.execute(query)
        finally:
            stopping.clear()
