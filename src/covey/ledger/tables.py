"""How a ledger's tables are laid out.

Only `events` is in the chain. `clients` stands apart because its rows can be erased: events
name a client by its handle alone. `clock` stands apart because equal runs must have equal
chains. `requests` and `tombstones` are about those who leave. `states` and `files` hold SHA-256
of what the run wrote and read beside its ledger.
"""

from functools import cache

import sqlalchemy as sql
from sqlalchemy import Column, Connection, Index, Integer, Table, Text, event

from covey.base.errors import LedgerError
from covey.base.files import LAYOUT, layout, strange
from covey.base.names import another_format

VERSION = 13
"""The format of a ledger: of the layout below, and of what its events say."""

metadata = sql.MetaData()

events = Table(
    "events",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("round", Integer, key="round_index", nullable=True),
    Column("kind", Text, nullable=False),
    Column("body", sql.LargeBinary, nullable=False),  # the canonical text, compressed by zlib
    Column("hash", Text, nullable=False),
    Index("events_by_round", "round_index", "position"),
    Index("events_by_kind", "kind", "position"),
)

clients = Table(
    "clients",
    metadata,
    Column("handle", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("key", Text),
    sqlite_with_rowid=False,
)

# PostgreSQL copies common values into its statistics, where no erasure would find them
for column in clients.c:
    keep_out = sql.DDL(f"ALTER TABLE clients ALTER COLUMN {column.name} SET STATISTICS 0")
    event.listen(clients, "after_create", keep_out.execute_if(dialect="postgresql"))

clock = Table(
    "clock",
    metadata,
    # of the last entry of each transaction
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("written_at", Text, nullable=False),
)

requests = Table(
    "requests",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("handle", Text, nullable=False),
    Column("wanted", Text, nullable=False),
    Column("after_round", Integer, unique=True),
    Column("state", Text, nullable=False),
    Column("requested_at", Text, nullable=False),
    Column("served_at", Text),
    Column("answered_at", Text),
    Column("answer", Text),
    Column("note", Text),
    Column("basis", Text, nullable=False),
    Column("sealed", Text),
)

tombstones = Table("tombstones", metadata, Column("mark", Text, primary_key=True))

states = Table(
    "states",
    metadata,
    Column("hash", Text, primary_key=True),
    # of the last event that the state has seen
    Column("position", Integer, nullable=False),
    Index("states_by_position", "position"),
)

files = Table(
    "files",
    metadata,
    Column("name", Text, primary_key=True),
    # several while a file is replaced: whichever of them a kill leaves is right
    Column("hash", Text, primary_key=True),
)

schema = Table("schema", metadata, Column("version", Integer, nullable=False))


def is_laid_out(connection: Connection) -> bool:
    """Return whether some version of a ledger is there."""
    return sql.inspect(connection).has_table(schema.name)


def lay_out(connection: Connection, location: str) -> None:
    """Make the tables, unless a ledger is there already."""
    if is_laid_out(connection):
        raise LedgerError(
            f"{location} must be new, found a ledger: open it to carry it on, or choose another."
        )
    metadata.create_all(connection, checkfirst=False)  # never takes over a stranger's
    connection.execute(sql.insert(schema).values(version=VERSION))


@cache
def _layout() -> frozenset[tuple[str, ...]]:
    # NullPool: SQLAlchemy keeps a database in memory open otherwise
    with sql.create_engine("sqlite://", poolclass=sql.NullPool).connect() as connection:
        metadata.create_all(connection)
        return layout(connection.exec_driver_sql(LAYOUT))


def check_version(connection: Connection, location: str) -> None:
    """Refuse a database that is no ledger, or one of another version of covey.

    In an SQLite file whatever covey did not lay out is refused, too, before it is queried.
    """
    if not is_laid_out(connection):
        raise LedgerError(f"{location} must hold a ledger, found none: check the place.")
    odd = ""
    if connection.dialect.name == "sqlite":
        columns = layout(connection.exec_driver_sql(LAYOUT))
        odd = strange(columns, _layout())
        if any(kind not in ("table", "index") for kind, *_ in columns) or not any(
            table in columns for table in _layout() if table[1] == schema.name
        ):
            raise _not_laid_out(location, odd)
    version = connection.scalar(sql.select(schema.c.version))
    if version != VERSION:
        raise LedgerError(another_format(f"The ledger {location}", version, VERSION))
    if odd:
        raise _not_laid_out(location, odd)


def _not_laid_out(location: str, odd: str) -> LedgerError:
    return LedgerError(
        f"{location} must hold a ledger's tables as covey lays them out and nothing else, found "
        f"that the {odd} differs: restore it from a copy."
    )


def check_writable(connection: Connection) -> None:
    """Write what is there already: a read-only file fails now, not after a round."""
    connection.execute(sql.update(schema).values(version=VERSION))
