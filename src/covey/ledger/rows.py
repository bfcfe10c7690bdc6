"""The rows of a ledger: the chain, each event's text compressed, and hashes beside it.

Hashes of what a run keeps beside its chain (states, files, and the ledger's own tables) stand
outside of it, so that it stays what it was. What is damaged by accident is seen; who rewrites
the ledger can rewrite them too, and is seen by the models' hashes in the chain.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select

from covey.base.errors import LedgerError
from covey.base.files import file_hash, make_folder, replace_whole
from covey.ledger import tables
from covey.ledger.backends import Database
from covey.ledger.chain import (
    REWIND,
    Link,
    Record,
    counts,
    rewound_to,
    seal,
    superseded_up_to,
    torn,
)
from covey.ledger.tables import events, files, states

MOST_ROWS = 50
"""How many events a server sends at once; one of many clients is long."""

MOST_BYTES = 4_000_000
"""Bytes of events that `read_piece` fetches, or one round if that is longer."""


SEALED = (tables.clients, tables.requests, tables.tombstones)

_CELLS = json.JSONEncoder(default=repr)
"""With repr, as a damaged file can hold any type in any column."""


def add(
    connection: Connection, round_index: int | None, records: Sequence[Record], written_at: str
) -> list[Link]:
    """Record what happened at once, in a round or between two, and return its links.

    Raises:
        LedgerError: nothing did, something is of elsewhere, or a rewind names no round.
    """
    strays = [one.round_index for one in records if one.round_index != round_index]
    if strays or not records:
        where = "between two rounds" if round_index is None else f"of round {round_index}"
        other = "no round" if None in strays else f"round {strays[0]}" if strays else ""
        actual = f"one of {other}" if other else "none"
        raise LedgerError(
            f"What is recorded {where} must be at least one event, all of them from there, found "
            f"{actual}: record each round by itself."
        )
    for one in records:
        rewound_to(one)  # refuses a rewind that no reader could follow
    sealed = seal(records, after=newest(connection))
    cells = [
        {
            "position": one.position,
            "round_index": one.round_index,
            "kind": one.kind,
            "body": _compressed(one.body),
            "hash": one.hash,
        }
        for one in sealed
    ]
    connection.execute(insert(events), cells)
    clock = tables.clock.c
    latest = select(clock.written_at).order_by(clock.position.desc()).limit(1)
    # a machine's clock may be set back; the ledger's order stands
    written_at = max(written_at, connection.scalar(latest) or "")
    stamp = {"position": sealed[-1].position, "written_at": written_at}
    connection.execute(insert(tables.clock), stamp)
    return sealed


def links(connection: Connection, *where: ColumnElement[bool]) -> Iterator[Link]:
    """Yield the events of which this holds in order, one by one."""
    query = select(events).where(*where).order_by(events.c.position)
    options = {"stream_results": True, "max_row_buffer": MOST_ROWS}
    with connection.execute(query, execution_options=options) as result:
        yield from (_link(tuple(row)) for row in result)


def newest(
    connection: Connection,
    *where: ColumnElement[bool],
    by: Sequence[ColumnElement[Any]] = (events.c.position,),
) -> Link | None:
    """Return the last event of which this holds."""
    query = select(events).where(*where).order_by(*(column.desc() for column in by)).limit(1)
    row = connection.execute(query).first()
    return None if row is None else _link(tuple(row))


def read_piece(connection: Connection, after: int) -> tuple[list[Link], bool]:
    """Return links after a position, a few megabytes, and whether these are all.

    A round is whole in it, or not there.
    """
    piece: list[Link] = []
    room, before = MOST_BYTES, None
    for one in links(connection, events.c.position > after):
        if room <= 0 and (one.round_index is None or one.round_index != before):
            return piece, False
        piece.append(one)
        room, before = room - len(one.body), one.round_index
    return piece, True


def read_round(connection: Connection, round_index: int) -> list[Link]:
    """Return what still counts of one round, in order."""
    after = superseded_up_to(read_rewinds(connection), round_index)
    ours = events.c.round_index == round_index, events.c.position > after
    return list(links(connection, *ours))


def last_round(connection: Connection) -> int | None:
    """Return the newest round that still counts.

    Rounds are recorded in order, so it is the last one since the last rewind, or else
    the last one before the round that this rewind names: a few rows, of however many.
    """
    rewinds = read_rewinds(connection)
    at, before = max(rewinds, default=(0, None))
    since = events.c.position > at, events.c.round_index.is_not(None)
    latest_event, by = newest(connection, *since), (events.c.round_index, events.c.position)
    while latest_event is None and before is not None:
        latest = newest(connection, events.c.round_index < before, by=by)
        before = latest.round_index if latest else None
        latest_event = latest if latest and counts(rewinds, latest.position, before) else None
    return latest_event.round_index if latest_event else None


def read_rewinds(connection: Connection) -> list[tuple[int, int]]:
    """Return the position of each rewind, and the round that it rewinds to."""
    between = events.c.round_index.is_(None), events.c.kind == REWIND
    rewinds = ((one.position, rewound_to(one.record())) for one in links(connection, *between))
    return [(position, first) for position, first in rewinds if first is not None]


def _compressed(text: str) -> bytes:
    # handles are drawn at random: chance matches among them would cost more than they save
    packer = zlib.compressobj(strategy=zlib.Z_FILTERED)
    return packer.compress(text.encode()) + packer.flush()


def _link(cells: tuple[Any, ...]) -> Link:
    # a damaged file can hold any type in any column
    match cells:
        case (int(position), int() | None as t, str(kind), bytes(body), str(hash_)):
            try:
                return Link(position, t, kind, zlib.decompress(body).decode(), hash_)
            except (zlib.error, UnicodeDecodeError):
                pass
        case _:
            pass
    raise torn(cells[0], "an event, found none")


@dataclass(frozen=True, slots=True)
class FileHashes:
    """The hashes that one ledger holds of its run's states and other files."""

    _database: Database

    def note_state(self, round_index: int, digest: str) -> None:
        """Note that a state after this round, with this hash, is about to be written."""
        with self._database.writing() as connection:
            known = select(states.c.position).where(states.c.hash == digest)
            if connection.scalar(known) is None:
                position = read_round(connection, round_index)[-1].position
                connection.execute(insert(states).values(hash=digest, position=position))

    def round_of_state(self, digest: str) -> tuple[bool, int | None]:
        """Return whether a state with this hash was written, and after which round.

        None: after one whose events are not there, or that was not of a round.
        """
        same = states.c.position == events.c.position
        query = select(events.c.round_index).select_from(states).outerjoin(events, same)
        with self._database.reading() as connection:
            row = connection.execute(query.where(states.c.hash == digest)).first()
        return row is not None, row[0] if row else None

    def newest_state(self) -> int | None:
        """Return the last round after which a state was written that still counts."""
        same = states.c.position == events.c.position
        query = select(events.c.position, events.c.round_index).join(states, same)
        query = query.where(events.c.round_index.is_not(None)).order_by(states.c.position.desc())
        with self._database.reading() as connection:
            rewinds = read_rewinds(connection)
            newest_first = connection.execute(query, execution_options={"stream_results": True})
            return next((t for at, t in newest_first if counts(rewinds, at, t)), None)

    def note(self, hashes: Mapping[str, str]) -> None:
        """Note a hash that each file may have, beside those that it may have already."""
        with self._database.writing() as connection:
            for name, digest in hashes.items():
                if digest not in _hashes_of(connection, name):
                    connection.execute(insert(files).values(name=name, hash=digest))

    def keep_only(self, name: str, digest: str) -> None:
        """Forget every other hash of a file: it is on the disk with this one."""
        with self._database.writing() as connection:
            others = files.c.name == name, files.c.hash != digest
            connection.execute(delete(files).where(*others))

    def write(self, name: str, path: Path, content: bytes) -> None:
        """Write a file of this name; whenever this is cut off, its hash is one that is noted."""
        digest = hashlib.sha256(content).hexdigest()
        self.note({name: digest})
        make_folder(path.parent)
        replace_whole(path, content, mode=0o600)
        self.keep_only(name, digest)

    def problem(self, name: str, path: Path) -> str:
        """Say why a file is not what was written under this name; "": it is."""
        try:
            digest = file_hash(path)
        except OSError as error:
            return f"it cannot be read ({error})"
        return "" if digest in self.of(name) else "its bytes are not those that were written"

    def of(self, name: str) -> frozenset[str]:
        """Return the hashes that a file may have; none: nothing is known of it."""
        with self._database.reading() as connection:
            return _hashes_of(connection, name)


def seal_tables(connection: Connection, changed: Iterable[Table] = SEALED) -> None:
    """Note what tables outside the chain hold now."""
    for table in changed:
        name, digest = f"ledger:{table.name}", _content_hash(connection, table)
        connection.execute(delete(files).where(files.c.name == name))
        connection.execute(insert(files).values(name=name, hash=digest))


def check_tables(connection: Connection) -> None:
    """Compare the tables outside the chain with what was last recorded of them.

    Raises:
        LedgerError: one of them holds something else.
    """
    for table in SEALED:
        recorded = _hashes_of(connection, f"ledger:{table.name}")
        if _content_hash(connection, table) not in recorded:
            raise LedgerError(
                f"The ledger's table {table.name} must hold what covey wrote, found another: "
                f"restore it from a copy, as who takes part or left is not sure."
            )


def _hashes_of(connection: Connection, name: str) -> frozenset[str]:
    return frozenset(connection.scalars(select(files.c.hash).where(files.c.name == name)))


def _content_hash(connection: Connection, table: Table) -> str:
    rows = connection.execute(select(table), execution_options={"stream_results": True})
    lines = sorted(_CELLS.encode(tuple(row)) for row in rows)  # databases order text differently
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
