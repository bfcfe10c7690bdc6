"""The rows of a ledger: the chain, each event's text compressed, and who took part.

A row of `participation` says that a client took part in a round: in which cluster, and in
which anonymity set of the event at its position. It is written in the transaction that records
the events. Only these are sealed: the table is compared with them by `covey ledger doctor` and by
who follows a run, and can be made of them anew.

Hashes of what a run keeps beside its chain (states, files, and the ledger's own tables) stand
outside of it, so that it stays what it was. What is damaged by accident is seen; who rewrites
the ledger can rewrite them too, and is seen by the models' hashes in the chain.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, func, insert, select

from covey.base.errors import LedgerError
from covey.base.names import Handle
from covey.ledger.chain import (
    GENESIS,
    REWIND,
    Link,
    Record,
    counts,
    rewound_to,
    seal,
    superseded_up_to,
)
from covey.ledger.tables import (
    clients,
    clock,
    events,
    files,
    participation,
    requests,
    states,
    tombstones,
)

MOST_ROWS = 50
"""How many events a server sends at once; one of many clients is long."""


def add(connection: Connection, records: Sequence[Record], written_at: str) -> str:
    """Carry the chain on with at least one record, and return its new head."""
    sealed = seal(records, after=last_link(connection))
    cells = [
        {
            "position": one.position,
            "round_index": one.round_index,
            "kind": one.kind,
            "body": zlib.compress(one.body.encode()),
            "hash": one.hash,
        }
        for one in sealed
    ]
    connection.execute(insert(events), cells)
    add_places(connection, ((a.position, b) for a, b in zip(sealed, records, strict=True)))
    stamp = {"position": sealed[-1].position, "written_at": written_at}
    connection.execute(insert(clock), stamp)
    return sealed[-1].hash


def links(connection: Connection, *where: ColumnElement[bool]) -> Iterator[Link]:
    """Yield the events in order, one by one: the whole chain, or those of which this holds."""
    query = select(events).where(*where).order_by(events.c.position)
    options = {"stream_results": True, "max_row_buffer": MOST_ROWS}
    with connection.execute(query, execution_options=options) as result:
        yield from (_link(tuple(row)) for row in result)


def between(connection: Connection, kind: str) -> Iterator[Link]:
    """Yield what was recorded of one kind between rounds, in order."""
    return links(connection, events.c.round_index.is_(None), events.c.kind == kind)


def read_piece(connection: Connection, position: int, most_bytes: int) -> tuple[list[Link], bool]:
    """Return links after a position, about so many bytes, and whether these are all.

    A round is whole in it, or not there.
    """
    piece: list[Link] = []
    before: int | None = None
    for one in links(connection, events.c.position > position):
        if most_bytes <= 0 and (one.round_index is None or one.round_index != before):
            return piece, False
        piece.append(one)
        most_bytes, before = most_bytes - len(one.body), one.round_index
    return piece, True


def hash_at(connection: Connection, position: int) -> str | None:
    """Return the hash of the event at a position."""
    return connection.scalar(select(events.c.hash).where(events.c.position == position))


def end(connection: Connection) -> tuple[int, str]:
    """Return the last position and its hash, without its event."""
    query = select(events.c.position, events.c.hash).order_by(events.c.position.desc())
    row = connection.execute(query.limit(1)).first()
    match (0, GENESIS) if row is None else tuple(row):
        case (int(position), str(head)):
            return position, head
        case cells:
            raise _no_event(cells[0])


def last_link(connection: Connection) -> Link | None:
    """Return the end of the chain."""
    query = select(events).order_by(events.c.position.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else _link(tuple(row))


def newest_time(connection: Connection) -> str | None:
    """Return when the last entry was written."""
    query = select(clock.c.written_at).order_by(clock.c.position.desc())
    return connection.scalar(query.limit(1))


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
    cells = select(events.c.round_index, events.c.position)
    since = cells.where(events.c.position > at, events.c.round_index.is_not(None))
    newest = _first(connection, since.order_by(events.c.position.desc()))
    while newest is None and before is not None:
        earlier = cells.where(events.c.round_index < before)
        latest = _first(
            connection, earlier.order_by(events.c.round_index.desc(), events.c.position.desc())
        )
        if latest is None:
            return None
        before, position = latest
        newest = latest if counts(rewinds, position, before) else None
    return newest[0] if newest else None


def read_rewinds(connection: Connection) -> list[tuple[int, int]]:
    """Return the position of each rewind, and the round that it rewinds to."""
    return [
        (one.position, first)
        for one in between(connection, REWIND)
        if (first := rewound_to(one.record())) is not None
    ]


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
    raise _no_event(cells[0])


def _first(connection: Connection, query: Select[*tuple[Any, ...]]) -> tuple[int, int] | None:
    row = connection.execute(query.limit(1)).first()
    match None if row is None else tuple(row):
        case (int(round_index), int(position)):
            return round_index, position
        case None:
            return None
        case cells:
            raise LedgerError(
                f"The ledger is broken at position {cells[-1]}: it is of no round "
                f"that can be. Restore it from a copy."
            )


def _no_event(position: object) -> LedgerError:
    return LedgerError(
        f"The ledger is broken at position {position}: what stands there is not an event. "
        f"Restore it from a copy."
    )


class Place(NamedTuple):
    """A client's place in a round.

    Attributes:
        position: of the event that says so: of sets, where there are any.
        cluster: whose model it trained; None: a user's own algorithm was handed the client.
        set_index: which of the event's anonymity sets held it; None: none did.
    """

    round_index: int
    client: Handle
    position: int
    cluster: int | None
    set_index: int | None


def add_places(connection: Connection, records: Iterable[tuple[int, Record]]) -> None:
    """Write the places of whole rounds that were just recorded, at these positions."""
    for rows in _rows_by_round(records):
        values = [dict(zip(Place._fields, row, strict=True)) for row in rows]
        connection.execute(insert(participation), values)


def places_of(connection: Connection, client: Handle) -> list[Place]:
    """Return a client's places in order, those in superseded rounds too."""
    # The rows of a round stand together, so that a round is added at the end of the table
    # whoever took part; a client is then looked up once in each round.
    rounds = select(events.c.round_index).distinct().subquery()
    query = (
        select(participation)
        .join(rounds, participation.c.round_index == rounds.c.round_index)
        .where(participation.c.client == client)
        .order_by(participation.c.position)
    )
    return [Place(*row) for row in connection.execute(query)]


def places_between(connection: Connection, piece: Sequence[Link]) -> list[tuple[Any, ...]]:
    """Return the rows of events that follow each other, as they stand."""
    rounds = [one.round_index for one in piece if one.round_index is not None]
    if not rounds:
        return []
    query = select(participation).where(
        participation.c.round_index.between(min(rounds), max(rounds)),
        participation.c.position.between(piece[0].position, piece[-1].position),
    )
    return [tuple(row) for row in connection.execute(query).all()]


def check_places(piece: Iterable[Link], rows: Iterable[tuple[Any, ...]]) -> None:
    """Compare rows with the whole, verified rounds that they were made of.

    Raises:
        LedgerError: they say something else.
    """
    records = ((one.position, one.record()) for one in piece)
    expected = set(chain.from_iterable(_rows_by_round(records)))
    if wrong := expected.symmetric_difference(rows):
        raise not_the_events(f"in round {min(str(row[0]) for row in wrong)}")


def not_the_events(where: str) -> LedgerError:
    """Return what is raised where the table is not what the events make of it."""
    return LedgerError(
        f"The ledger's table of who took part must hold what its events say, but {where} it "
        f"holds something else. The events are whole: make it anew with "
        f"`covey ledger doctor --repair`."
    )


def _rows_by_round(records: Iterable[tuple[int, Record]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of each round, in the table's order; tuples, as they can be millions."""
    for t, entry in groupby(records, key=lambda each: each[1].round_index):
        if t is None:
            continue
        named: dict[tuple[Handle, int | None], tuple[int, int | None]] = {}
        for position, record in entry:
            for client, cluster, set_index in _named(record):
                named[client, cluster] = position, set_index
        if named:
            yield sorted((t, one, at, j, c) for (one, j), (at, c) in named.items())


def _named(record: Record) -> Iterable[tuple[Handle, int | None, int | None]]:
    """Return whom an event names, of which cluster, in which set."""
    try:
        match record.kind, record.body:
            case "ClientsAssigned", {"by": by, "clusters": clusters} if by != "final":
                return [(str(one), int(j), None) for one, j in clusters.items()]
            case "AnonymitySetsFormed", {"cluster": j, "sets": sets}:
                return [(str(one), int(j), c) for c, own in enumerate(sets) for one in own]
            case "ClientsHandedOut", {"handles": handles}:
                return [(str(one), None, None) for one in handles]
            case _:
                return ()
    except (TypeError, ValueError, AttributeError):
        return ()  # whoever seals a chain can put anything there; its readers refuse it


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
                if digest not in _hashes_named(connection, name):
                    connection.execute(insert(files).values(name=name, hash=digest))

    def settle(self, name: str, digest: str) -> None:
        """Forget every other hash of a file: it is on the disk with this one."""
        with self.writing() as connection:
            others = files.c.name == name, files.c.hash != digest
            connection.execute(delete(files).where(*others))

    def of(self, name: str) -> frozenset[str]:
        """Return the hashes that a file may have; none: nothing is known of it."""
        with self.reading() as connection:
            return _hashes_named(connection, name)


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
        if _content_hash(connection, table) not in _hashes_named(
            connection, f"ledger:{table.name}"
        ):
            raise LedgerError(
                f"The ledger's table of {table.name} must hold what covey last wrote "
                f"there, but it holds something else. Restore the ledger from a copy: "
                f"who takes part, who asked to leave and who left cannot be trusted."
            )


def _hashes_named(connection: Connection, name: str) -> frozenset[str]:
    return frozenset(connection.scalars(select(files.c.hash).where(files.c.name == name)))


def _content_hash(connection: Connection, table: Table) -> str:
    rows = connection.execute(select(table), execution_options={"stream_results": True})
    lines = sorted(_CELLS.encode(tuple(row)) for row in rows)  # databases order text differently
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
