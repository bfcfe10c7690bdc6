"""The chain as it lies in its table: each event a row, its text compressed."""

import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select

from covey.base.errors import LedgerError
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
from covey.ledger.participation import add_places
from covey.ledger.tables import clock, events

MOST_ROWS = 50
"""How many events a server sends at once; one of many clients is long."""


def add(connection: Connection, records: Sequence[Record], written_at: str) -> str:
    """Carry the chain on with at least one record, and return its new head."""
    links = seal(records, after=last_link(connection))
    cells = [
        {
            "position": one.position,
            "round_index": one.round_index,
            "kind": one.kind,
            "body": zlib.compress(one.body.encode()),
            "hash": one.hash,
        }
        for one in links
    ]
    connection.execute(insert(events), cells)
    add_places(connection, ((a.position, b) for a, b in zip(links, records, strict=True)))
    stamp = {"position": links[-1].position, "written_at": written_at}
    connection.execute(insert(clock), stamp)
    return links[-1].hash


def each_link(connection: Connection, after: int = 0) -> Iterator[Link]:
    """Yield the whole chain in order, or what stands after a position, one by one."""
    query = select(events).where(events.c.position > after) if after else select(events)
    return _links(connection, query)


def read_piece(connection: Connection, position: int, most_bytes: int) -> tuple[list[Link], bool]:
    """Return links after a position, about so many bytes, and whether these are all.

    A round is whole in it, or not there.
    """
    piece: list[Link] = []
    before: int | None = None
    for one in each_link(connection, position):
        if most_bytes <= 0 and (one.round_index is None or one.round_index != before):
            return piece, False
        piece.append(one)
        most_bytes, before = most_bytes - len(one.body), one.round_index
    return piece, True


def read_at(connection: Connection, position: int) -> list[Link]:
    """Return the event at a position, if there is one."""
    return list(_links(connection, select(events).where(events.c.position == position)))


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


def times(connection: Connection) -> dict[int, str]:
    """Return when each entry was written, by the position of its last event, in order."""
    return dict(map(tuple, connection.execute(select(clock).order_by(clock.c.position))))


def newest_time(connection: Connection) -> str | None:
    """Return when the last entry was written."""
    query = select(clock.c.written_at).order_by(clock.c.position.desc())
    return connection.scalar(query.limit(1))


def read_round(connection: Connection, round_index: int) -> list[Link]:
    """Return what still counts of one round, in order."""
    superseded = superseded_up_to(read_rewinds(connection), round_index)
    ours = select(events).where(events.c.round_index == round_index, events.c.position > superseded)
    return list(_links(connection, ours))


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


def furthest_round(connection: Connection) -> int | None:
    """Return the largest round that was ever recorded, superseded or not."""
    return connection.scalar(select(func.max(events.c.round_index)))


def read_rewinds(connection: Connection) -> list[tuple[int, int]]:
    """Return the position of each rewind, and the round that it rewinds to."""
    return [
        (one.position, first)
        for one in read_between(connection, REWIND)
        if (first := rewound_to(one.record())) is not None
    ]


def read_between(connection: Connection, kind: str) -> list[Link]:
    """Return what was recorded of one kind between rounds, in order."""
    query = select(events).where(events.c.round_index.is_(None), events.c.kind == kind)
    return list(_links(connection, query))


def read_others(connection: Connection, kinds: Collection[str]) -> list[Link]:
    """Return what was recorded of all other kinds, in order."""
    return list(_links(connection, select(events).where(events.c.kind.not_in(list(kinds)))))


def _links(connection: Connection, query: Select[*tuple[Any, ...]]) -> Iterator[Link]:
    options = {"stream_results": True, "max_row_buffer": MOST_ROWS}
    ordered = query.order_by(events.c.position)
    with connection.execute(ordered, execution_options=options) as result:
        yield from (_link(tuple(row)) for row in result)


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
