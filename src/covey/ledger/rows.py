"""The rows of a ledger: the chain, each event's text compressed, and who took part.

A row of `participation` says that a client took part in a round: in which cluster, and in
which anonymity set of the event at its position. It is written in the transaction that records
the events. Only these are sealed: the table is compared with them by `covey doctor` and by who
follows a run, and can be made of them anew.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, insert, select

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
from covey.ledger.tables import clock, events, participation

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
        f"holds something else. The events are whole: make it anew with `covey doctor --repair`."
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
