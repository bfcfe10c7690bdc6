"""SQLite files that somebody else wrote: whatever is no table of covey's is refused unread."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from covey.base.databases import bounded, stopping
from covey.base.errors import LedgerError
from covey.ledger.store import Ledger

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
