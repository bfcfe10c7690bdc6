"""SQLite files that anybody may have written: bounds of what reading one takes, and its layout.

A view stands in the place of a table and never ends; a trigger runs at a write. So a file's own
list of what it holds is compared before anything else of it is read.
"""

import sqlite3
from collections.abc import Iterable
from threading import Event
from time import monotonic

SECONDS = 600.0
"""How long one connection may work: a long ledger is read in many."""

_LARGEST = 2**28
"""Bytes of a value or a row."""

_STEPS = 100_000
"""Steps of SQLite's machine between two looks at the clock: some milliseconds."""

stopping = Event()
"""Set where the process is to end: every query then fails, in whatever thread it runs."""


LAYOUT = "SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 1000"
"""What a file says that it holds."""


def bounded(connection: sqlite3.Connection, seconds: float = SECONDS) -> sqlite3.Connection:
    """Bound a connection's time and the bytes of a row; nothing in the file calls functions."""
    deadline = monotonic() + seconds
    connection.set_progress_handler(lambda: stopping.is_set() or monotonic() > deadline, _STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
    try:
        connection.execute("PRAGMA trusted_schema = OFF").close()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def layout(rows: Iterable[Iterable[object]]) -> frozenset[tuple[str, ...]]:
    """Return what `LAYOUT` finds, however its statements are broken into lines."""
    return frozenset(tuple(" ".join(str(cell).split()) for cell in row) for row in rows)


def strange(found: frozenset[tuple[str, ...]], expected: frozenset[tuple[str, ...]]) -> str:
    """Name what a file holds and must not, or lacks: "view events"; "": nothing."""
    odd = sorted(found - expected) or sorted(expected - found)
    return f"{odd[0][0]} {odd[0][1]}" if odd else ""
