"""The table of handles that packed events name by number.

It grows by a row for each transaction that names somebody new, and nothing in it ever
changes: the chain's hashes are over the handles' texts, so that an event whose numbers
lead to other handles is seen like any other change.
"""

import json
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, insert, select

from covey.columns import Words
from covey.errors import LedgerError
from covey.ledger.packing import canonical
from covey.ledger.tables import handles

__all__ = ["KnownWords", "add_words", "with_words", "words_of"]

OPTION = "covey_words"


class KnownWords:
    """What one open ledger has read of its table: each row once, while it stays."""

    def __init__(self) -> None:
        self.words = Words()
        self._last: tuple[int, str] | None = None
        self._lock = Lock()  # who serves pages reads in several threads

    def read(self, connection: Connection) -> Words:
        """Return all handles that there are now."""
        with self._lock:
            return self._read(connection)

    def _read(self, connection: Connection) -> Words:
        query = select(handles.c.first, handles.c.texts).order_by(handles.c.first)
        if self._last is not None:
            query = query.where(handles.c.first >= self._last[0])
        rows = [tuple(row) for row in connection.execute(query)]
        if self._last is not None:
            if not rows or rows[0] != self._last:  # another ledger is in its place now
                self.words, self._last = Words(), None
                return self._read(connection)
            rows = rows[1:]
        for row in rows:
            self.words.add(_texts(row, len(self.words)))
            self._last = row
        return self.words


def with_words(engine: Engine) -> Engine:
    """Return connections that together read the table once."""
    return engine.execution_options(**{OPTION: KnownWords()})


def words_of(connection: Connection) -> Words:
    """Return all handles that are known by number in the ledger of a connection."""
    known = connection.get_execution_options().get(OPTION)
    return (known if isinstance(known, KnownWords) else KnownWords()).read(connection)


def add_words(connection: Connection, first: int, texts: list[str]) -> None:
    """Give new handles their numbers, from `first` on."""
    row = {"first": first, "texts": canonical({"handles": texts})}
    connection.execute(insert(handles), row)


def _texts(row: tuple[Any, ...], first: int) -> list[str]:
    match row:
        case (int(begin), str(written)) if begin == first:
            match json.loads(written):
                case {"handles": [*texts]} if all(type(each) is str for each in texts):
                    return texts
                case _:
                    pass
        case _:
            pass
    raise LedgerError(
        f"The ledger's table of handles is broken at {row[0]}: packed events cannot be "
        f"read. Restore the ledger from a copy."
    )
