"""The ledger's tables, and what is read from them.

Only `events` is in the chain. `clients` stands apart because it can be erased: events
know a client by its handle alone. `clock` stands apart because equal runs must have
equal chains.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    update,
)

from covey.errors import LedgerError
from covey.ledger.chain import Link
from covey.types import ClientName, Handle

__all__ = [
    "check_version",
    "check_writable",
    "clients",
    "clock",
    "events",
    "last_link",
    "lay_out",
    "names",
    "read_links",
    "read_round",
]

VERSION = 1
"""The layout below; a ledger of another version is refused."""

metadata = MetaData()

events = Table(
    "events",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("round", Integer, key="round_index", nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("hash", Text, nullable=False),
)

clients = Table(
    "clients",
    metadata,
    Column("handle", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
)

clock = Table(
    "clock",
    metadata,
    Column("round", Integer, key="round_index", primary_key=True, autoincrement=False),
    Column("written_at", Text, nullable=False),
)

schema = Table("schema", metadata, Column("version", Integer, nullable=False))


def lay_out(connection: Connection, path: Path) -> None:
    """Make the tables, unless a ledger is there already."""
    if inspect(connection).has_table(schema.name):
        raise LedgerError(
            f"A new ledger needs a new file, but {path} holds one already. "
            f"Open it to carry it on, or choose another folder."
        )
    metadata.create_all(connection)
    connection.execute(insert(schema).values(version=VERSION))


def check_version(connection: Connection, path: Path) -> None:
    """Refuse a database that this version of covey did not lay out."""
    found = None
    if inspect(connection).has_table(schema.name):
        found = connection.scalar(select(schema.c.version))
    if found != VERSION:
        what = "no ledger" if found is None else f"a ledger of version {found}"
        raise LedgerError(
            f"{path} must hold a ledger of version {VERSION}, but it holds {what}. "
            f"Check the path, or use the version of covey that wrote it."
        )


def check_writable(connection: Connection) -> None:
    """Write what is there already: a read-only file fails now, not after a round."""
    connection.execute(update(schema).values(version=VERSION))


def read_links(connection: Connection) -> list[Link]:
    """Return the whole chain, in order."""
    rows = connection.execute(select(events).order_by(events.c.position))
    return _linked(rows.all())


def read_round(connection: Connection, round_index: int) -> list[Link]:
    """Return one round's part of the chain, in order."""
    query = select(events).where(events.c.round_index == round_index)
    return _linked(connection.execute(query.order_by(events.c.position)).all())


def last_link(connection: Connection) -> Link | None:
    """Return the end of the chain."""
    query = select(events).order_by(events.c.position.desc()).limit(1)
    return next(iter(_linked(connection.execute(query).all())), None)


def names(connection: Connection) -> dict[Handle, ClientName]:
    """Return who is behind each handle."""
    rows = connection.execute(select(clients).order_by(clients.c.handle))
    return {row.handle: row.name for row in rows}


def _linked(rows: Iterable[Iterable[Any]]) -> list[Link]:
    return [_link(tuple(row)) for row in rows]


def _link(cells: tuple[Any, ...]) -> Link:
    # a damaged file can hold any type in any column
    match cells:
        case (int(position), int(round_index), str(kind), str(body), str(hash_)):
            return Link(position, round_index, kind, body, hash_)
    raise LedgerError(
        f"The ledger is broken at position {cells[0]}: what stands there is not an "
        f"event. Restore the file from a copy."
    )
