"""Reading a ledger while it grows: a piece at a time, and each piece quickly.

A commit waits for whoever reads, so no transaction here lasts longer than it takes to
fetch a few megabytes; they are parsed and verified after it.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from sqlalchemy import Connection

from covey.errors import LedgerError
from covey.ledger import rows
from covey.ledger.chain import GENESIS, Link, Record, verify

__all__ = ["MOST_BYTES", "LedgerTail", "Piece"]

MOST_BYTES = 4_000_000
"""Bytes of events that one transaction fetches, or one event if that is longer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Links that follow each other, verified.

    Attributes:
        is_last: nothing followed them when they were read.
    """

    links: list[Link]
    is_last: bool


@dataclass(frozen=True, slots=True)
class LedgerTail:
    """What was added to a ledger since it was last read."""

    _transaction: Callable[[], AbstractContextManager[Connection]] = field(repr=False)

    def after(self, last: Link | None, most_bytes: int = MOST_BYTES) -> Piece:
        """Return what follows the link `last`, verified from there on.

        Raises:
            LedgerError: the chain is broken, or `last` is not in it any more.
        """
        position = last.position if last else 0
        with self._transaction() as connection:
            known = rows.hash_at(connection, position) if last else GENESIS
            links, is_last = rows.read_piece(connection, position, most_bytes)
        if last is not None and known != last.hash:
            raise LedgerError(
                f"The ledger is broken at position {position}: what stands there is not "
                f"what was read before. Restore it from a copy."
            )
        verify(links, last)
        return Piece(links, is_last)

    def rewinds(self) -> list[tuple[int, int]]:
        """Return the position of each rewind, and the round that it rewinds to."""
        with self._transaction() as connection:
            return rows.read_rewinds(connection)

    def without(self, kinds: Collection[str]) -> list[tuple[int, Record]]:
        """Return all other records with their positions, fast and not verified.

        Rounds that were rolled back are among them.
        """
        with self._transaction() as connection:
            found = rows.read_others(connection, kinds)
        return [(one.position, one.record()) for one in found]

    def end(self) -> tuple[int, str, str | None]:
        """Return the last position, its hash, and when it was written."""
        with self._transaction() as connection:
            position, head = rows.end(connection)
            return position, head, rows.newest_time(connection)
