"""Hashes of what a run keeps beside its chain: states, files, and the ledger's own tables.

They stand outside the chain, so that it stays what it was. What is damaged by accident
is seen; who rewrites the ledger can rewrite them too, and is seen by the models' hashes
in the chain.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy import Connection, Table, delete, func, insert, select

from covey.base.errors import LedgerError
from covey.ledger.chain import counts
from covey.ledger.rows import read_rewinds, read_round
from covey.ledger.tables import clients, events, files, requests, states, tombstones


@dataclass(frozen=True, slots=True)
class FileHashes:
    """The hashes that one ledger holds of its run's states and other files.

    Attributes:
        reading: opens a transaction.
        writing: opens one to write, or raises LedgerError.
    """

    reading: Callable[[], AbstractContextManager[Connection]]
    writing: Callable[[], AbstractContextManager[Connection]]

    def note_state(self, round_index: int, digest: str) -> None:
        """Note that a state after this round, with this hash, is about to be written."""
        with self.writing() as connection:
            known = select(states.c.position).where(states.c.hash == digest)
            if connection.scalar(known) is None:
                position = read_round(connection, round_index)[-1].position
                connection.execute(insert(states).values(hash=digest, position=position))

    def round_of_state(self, digest: str) -> tuple[bool, int | None]:
        """Return whether a state with this hash was written, and after which round.

        None: after one whose events are not there, or that was not of a round.
        """
        query = (
            select(events.c.round_index)
            .select_from(states)
            .outerjoin(events, states.c.position == events.c.position)
            .where(states.c.hash == digest)
        )
        with self.reading() as connection:
            row = connection.execute(query).first()
        return row is not None, row[0] if row else None

    def newest_state(self) -> int | None:
        """Return the last round after which a state was written that still counts."""
        with self.reading() as connection:
            rewinds = read_rewinds(connection)
            below = select(func.max(states.c.position))
            at = connection.scalar(below)
            while at is not None:
                t = connection.scalar(select(events.c.round_index).where(events.c.position == at))
                if t is not None and counts(rewinds, at, t):
                    return t
                at = connection.scalar(below.where(states.c.position < at))
        return None

    def note(self, name: str, digest: str) -> None:
        """Note a hash that a file may have, beside those that it may have already."""
        self.note_all({name: digest})

    def note_all(self, found: Mapping[str, str]) -> None:
        """Note a hash of each of these files, in one transaction."""
        with self.writing() as connection:
            for name, digest in found.items():
                if digest not in _of(connection, name):
                    connection.execute(insert(files).values(name=name, hash=digest))

    def settle(self, name: str, digest: str) -> None:
        """Forget every other hash of a file: it is on the disk with this one."""
        with self.writing() as connection:
            others = files.c.name == name, files.c.hash != digest
            connection.execute(delete(files).where(*others))

    def of(self, name: str) -> frozenset[str]:
        """Return the hashes that a file may have; none: nothing is known of it."""
        with self.reading() as connection:
            return _of(connection, name)


SEALED = (clients, requests, tombstones)

_CELLS = json.JSONEncoder(default=repr)
"""With repr, as a damaged file can hold any type in any column."""


def seal_tables(connection: Connection, tables: Iterable[Table] = SEALED) -> None:
    """Note what tables outside the chain hold now."""
    for table in tables:
        name, digest = f"ledger:{table.name}", _content_hash(connection, table)
        connection.execute(delete(files).where(files.c.name == name))
        connection.execute(insert(files).values(name=name, hash=digest))


def check_tables(connection: Connection) -> None:
    """Compare the tables outside the chain with what was last noted of them.

    Raises:
        LedgerError: one of them holds something else.
    """
    for table in SEALED:
        if _content_hash(connection, table) not in _of(connection, f"ledger:{table.name}"):
            raise LedgerError(
                f"The ledger's table of {table.name} must hold what covey last wrote "
                f"there, but it holds something else. Restore the ledger from a copy: "
                f"who takes part, who asked to leave and who left cannot be trusted."
            )


def _of(connection: Connection, name: str) -> frozenset[str]:
    return frozenset(connection.scalars(select(files.c.hash).where(files.c.name == name)))


def _content_hash(connection: Connection, table: Table) -> str:
    rows = connection.execute(select(table), execution_options={"stream_results": True})
    lines = sorted(_CELLS.encode(tuple(row)) for row in rows)  # databases order text differently
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
