"""The chain as it lies in its table, and the handles that packed events name by number.

The table of handles that packed events name by number.

It grows by a row for each transaction that names somebody new, and nothing in it ever
changes: the chain's hashes are over the handles' texts, so that an event whose numbers
lead to other handles is seen like any other change.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, Select, func, insert, select

from covey.base.columns import Words
from covey.base.errors import LedgerError
from covey.ledger.chain import GENESIS, REWIND, Link, Record, rewound_to, seal, superseded_up_to
from covey.ledger.packing import PackedBody, Packer, canonical_body
from covey.ledger.tables import clock, events, handles

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
    row = {"first": first, "texts": canonical_body({"handles": texts})}
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


MOST_ROWS = 50
"""How many events a server sends at once; one of many clients is long."""


def add(connection: Connection, records: Sequence[Record], written_at: str) -> str:
    """Carry the chain on with at least one record, and return its new head."""
    links = seal(records, after=last_link(connection))
    last = links[-1]
    stamp = {"position": last.position, "written_at": written_at}
    _insert(connection, records, links)
    connection.execute(insert(clock), stamp)
    return last.hash


def _insert(connection: Connection, records: Sequence[Record], links: Sequence[Link]) -> None:
    """Write links, the bodies of many clients as columns."""
    words = words_of(connection)
    packer = Packer(words)
    cells: list[dict[str, Any]] = []
    for record, one in zip(records, links, strict=True):
        text, columns = packer.packed(record.body) or (one.body, None)
        found = {"round_index": one.round_index, "kind": one.kind, "hash": one.hash}
        cells.append({"position": one.position, "body": text, "packed": columns, **found})
    if packer.new:
        add_words(connection, len(words), list(packer.new))
    connection.execute(insert(events), cells)


def read_links(connection: Connection, after: int = 0) -> list[Link]:
    """Return the whole chain in order, or what stands after a position."""
    return list(each_link(connection, after))


def each_link(connection: Connection, after: int = 0) -> Iterator[Link]:
    """Yield the whole chain in order, or what stands after a position, one by one."""
    query = _events()
    if after:
        query = query.where(events.c.position > after)
    words: Words | None = None
    options = {"stream_results": True, "max_row_buffer": MOST_ROWS}
    ordered = query.order_by(events.c.position)
    with connection.execute(ordered, execution_options=options) as result:
        for row in result:
            cells = tuple(row)
            if words is None and cells[-1] is not None:
                words = words_of(connection)
            yield _link(cells, words)


def read_piece(connection: Connection, position: int, most_bytes: int) -> tuple[list[Link], bool]:
    """Return links after a position, about so many bytes, and whether these are all."""
    found: list[Link] = []
    links = each_link(connection, position)
    for one in links:
        found.append(one)
        most_bytes -= len(one.body)
        if most_bytes <= 0:
            return found, next(links, None) is None
    return found, True


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
            raise LedgerError(
                f"The ledger is broken at position {cells[0]}: what stands there is not "
                f"an event. Restore it from a copy."
            )


def newest_time(connection: Connection) -> str | None:
    """Return when the last entry was written."""
    query = select(clock.c.written_at).order_by(clock.c.position.desc())
    return connection.scalar(query.limit(1))


def read_round(connection: Connection, round_index: int) -> list[Link]:
    """Return what still counts of one round, in order."""
    superseded = superseded_up_to(read_rewinds(connection), round_index)
    query = _events().where(events.c.round_index == round_index, events.c.position > superseded)
    return _read(connection, query.order_by(events.c.position))


def written_at(connection: Connection) -> list[str]:
    """Return when each entry was written, in order."""
    return list(connection.scalars(select(clock.c.written_at).order_by(clock.c.position)))


def times(connection: Connection) -> dict[int, str]:
    """Return when each entry was written, by the position of its last event."""
    rows = connection.execute(select(clock).order_by(clock.c.position))
    return {row.position: row.written_at for row in rows}


def last_link(connection: Connection) -> Link | None:
    """Return the end of the chain."""
    query = _events().order_by(events.c.position.desc()).limit(1)
    return next(iter(_read(connection, query)), None)


def last_round(connection: Connection) -> int | None:
    """Return the newest round that still counts.

    Rounds are recorded in order, so it is the last one since the last rewind, or else
    the last one before the round that this rewind names: a few rows, of however many.
    """
    rewinds = read_rewinds(connection)
    at, before = max(rewinds, default=(0, None))
    newest = _first(
        connection,
        select(events.c.round_index, events.c.position)
        .where(events.c.position > at, events.c.round_index.is_not(None))
        .order_by(events.c.position.desc()),
    )
    while newest is None and before is not None:
        found = _first(
            connection,
            select(events.c.round_index, events.c.position)
            .where(events.c.round_index < before)
            .order_by(events.c.round_index.desc(), events.c.position.desc()),
        )
        if found is None:
            return None
        before, position = found
        newest = found if position > superseded_up_to(rewinds, before) else None
    return newest[0] if newest else None


def _first(connection: Connection, query: Select[Any, Any]) -> tuple[int, int] | None:
    row = connection.execute(query.limit(1)).first()
    return None if row is None else _numbers(row)


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
    query = _events().where(events.c.round_index.is_(None), events.c.kind == kind)
    return _read(connection, query.order_by(events.c.position))


def read_others(connection: Connection, kinds: Collection[str]) -> list[Link]:
    """Return what was recorded of all other kinds, in order."""
    query = _events().where(events.c.kind.not_in(list(kinds)))
    return _read(connection, query.order_by(events.c.position))


def _events() -> Select[*tuple[Any, ...]]:
    return select(events)


def _read(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[Link]:
    found = [tuple(row) for row in connection.execute(query)]
    packed = any(cells[-1] is not None for cells in found)
    words = words_of(connection) if packed else None
    return [_link(cells, words) for cells in found]


# a damaged file can hold any type in any column
def _link(cells: tuple[Any, ...], words: Words | None) -> Link:
    match cells:
        case (int(position), int() | None as round_index, str(kind), str(body), str(hash_), None):
            return Link(position, round_index, kind, body, hash_)
        case (
            int(position),
            int() | None as round_index,
            str(kind),
            str(forms),
            str(hash_),
            bytes(columns),
        ) if words is not None:
            body = PackedBody(position, forms, columns, words)
            return Link(position, round_index, kind, body, hash_)
        case _:
            pass
    raise LedgerError(
        f"The ledger is broken at position {cells[0]}: what stands there is not an "
        f"event. Restore it from a copy."
    )


def _numbers(row: Iterable[Any]) -> tuple[int, int]:
    match tuple(row):
        case (int(round_index), int(position)):
            return round_index, position
        case cells:
            raise LedgerError(
                f"The ledger is broken at position {cells[-1]}: it is of no round "
                f"that can be. Restore it from a copy."
            )
