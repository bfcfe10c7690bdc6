"""A run's ledger as an attacker rewrites it: other events, under a chain that holds."""

import sqlite3
from contextlib import closing
from pathlib import Path
from zlib import compress, decompress

from covey.ledger.chain import GENESIS, link

Row = tuple[int | None, str, str]
"""An event's round, kind and body."""


def rows_of(folder: Path) -> list[Row]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as place, place:
        query = "SELECT round, kind, body FROM events ORDER BY position"
        return [(t, kind, decompress(body).decode()) for t, kind, body in place.execute(query)]


def reseal(folder: Path, rows: list[Row]) -> None:
    """Put these events in the place of a ledger's."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as place, place:
        place.execute("DELETE FROM events")
        head = GENESIS
        for position, (t, kind, body) in enumerate(rows, 1):
            head = link(head, t, kind, body)
            place.execute(
                "INSERT INTO events (position, round, kind, body, hash) VALUES (?, ?, ?, ?, ?)",
                (position, t, kind, compress(body.encode()), head),
            )
