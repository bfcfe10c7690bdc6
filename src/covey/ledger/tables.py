"""How a ledger's tables are laid out.

Only `events` is in the chain, and with it `handles`, by whose numbers packed events name
clients. `clients`, `client_keys` and `client_organisations` stand
apart because they can be erased: events know a client by its handle alone. `clock` stands
apart because equal runs must have equal chains. `requests` and `tombstones` are about those
who leave. `states` and `files` hold SHA-256 of what the run wrote and read beside its
ledger.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    DDL,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    event,
    insert,
    inspect,
    literal,
    null,
    select,
    update,
)

from covey.errors import LedgerError

__all__ = [
    "check_version",
    "check_writable",
    "client_keys",
    "client_organisations",
    "clients",
    "clock",
    "event_columns",
    "events",
    "files",
    "handles",
    "has_table",
    "holds_hashes",
    "is_laid_out",
    "lay_out",
    "migrate",
    "request_columns",
    "requests",
    "states",
    "tombstones",
]

VERSION = 7
"""The layout below; a writer brings an older one up to it, a reader reads it as it is."""

SINCE = {
    3: (
        "ALTER TABLE requests ADD COLUMN basis TEXT NOT NULL DEFAULT 'none'",
        "ALTER TABLE requests ADD COLUMN sealed TEXT",
    ),
    4: (
        "CREATE TABLE client_keys (handle TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL)",
    ),
    5: (
        "CREATE TABLE IF NOT EXISTS states "
        "(hash TEXT NOT NULL PRIMARY KEY, position INTEGER NOT NULL)",
        "CREATE INDEX IF NOT EXISTS states_by_position ON states (position)",
        "CREATE TABLE IF NOT EXISTS files "
        "(name TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (name, hash))",
    ),
    6: (
        "CREATE TABLE IF NOT EXISTS client_organisations "
        "(handle TEXT NOT NULL PRIMARY KEY, organisation TEXT NOT NULL)",
    ),
    7: (
        "ALTER TABLE events ADD COLUMN packed BYTEA",
        "CREATE TABLE handles (first INTEGER NOT NULL PRIMARY KEY, texts TEXT NOT NULL)",
    ),
}
"""What each version added to the one before; those that are missing here are refused."""

metadata = MetaData()

events = Table(
    "events",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("round", Integer, key="round_index", nullable=True),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("hash", Text, nullable=False),
    # the numbers of a body with many clients, whose text then says how they are packed
    Column("packed", LargeBinary, nullable=True),
    Index("events_by_round", "round_index", "position"),
)

handles = Table(
    "handles",
    metadata,
    # the number of the first of these handles; the others follow it
    Column("first", Integer, primary_key=True, autoincrement=False),
    Column("texts", Text, nullable=False),
)

clients = Table(
    "clients",
    metadata,
    Column("handle", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
)

client_keys = Table(
    "client_keys",
    metadata,
    Column("handle", Text, primary_key=True),
    Column("key", Text, nullable=False),
)

client_organisations = Table(
    "client_organisations",
    metadata,
    Column("handle", Text, primary_key=True),
    Column("organisation", Text, nullable=False),
)

# PostgreSQL copies common values into its statistics, where no erasure would find them
event.listen(
    clients,
    "after_create",
    DDL(
        "ALTER TABLE clients ALTER COLUMN handle SET STATISTICS 0, "
        "ALTER COLUMN name SET STATISTICS 0"
    ).execute_if(dialect="postgresql"),
)

event.listen(
    client_keys,
    "after_create",
    DDL(
        "ALTER TABLE client_keys ALTER COLUMN handle SET STATISTICS 0, "
        "ALTER COLUMN key SET STATISTICS 0"
    ).execute_if(dialect="postgresql"),
)

event.listen(
    client_organisations,
    "after_create",
    DDL(
        "ALTER TABLE client_organisations ALTER COLUMN handle SET STATISTICS 0, "
        "ALTER COLUMN organisation SET STATISTICS 0"
    ).execute_if(dialect="postgresql"),
)

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
    Column("asked_at", Text, nullable=False),
    Column("served_at", Text),
    Column("answered_at", Text),
    Column("answer", Text),
    Column("note", Text),
    Column("basis", Text, nullable=False, server_default="none"),
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
    return inspect(connection).has_table(schema.name)


def lay_out(connection: Connection, location: str) -> None:
    """Make the tables, unless a ledger is there already."""
    if is_laid_out(connection):
        raise LedgerError(
            f"A new ledger needs a new place, but {location} holds one already. "
            f"Open it to carry it on, or choose another place."
        )
    metadata.create_all(connection, checkfirst=False)  # never takes over a stranger's
    connection.execute(insert(schema).values(version=VERSION))


def check_version(connection: Connection, location: str) -> None:
    """Refuse a database whose layout this version of covey does not know."""
    found = _version(connection) if is_laid_out(connection) else None
    if found not in (VERSION, *(later - 1 for later in SINCE)):
        what = "no ledger" if found is None else f"a ledger of version {found}"
        raise LedgerError(
            f"{location} must hold a ledger of version {VERSION}, but it holds {what}. "
            f"Check the place, or use the version of covey that wrote it."
        )


def migrate(connection: Connection) -> None:
    """Bring the tables of an older version up to this one."""
    found = _version(connection)
    for version in range(found + 1, VERSION + 1):
        for statement in SINCE[version]:
            connection.exec_driver_sql(statement)
    if found < VERSION:
        connection.execute(update(schema).values(version=VERSION))


def request_columns(connection: Connection) -> Sequence[ColumnElement[object]]:
    """Return what to select of `requests`; what an old ledger lacks is filled in."""
    if _version(connection) >= 3:
        return tuple(requests.c)
    lacking = {
        "basis": literal("none").label("basis"),
        "sealed": null().label("sealed"),
    }
    return tuple(lacking.get(column.name, column) for column in requests.c)


def event_columns(connection: Connection) -> Sequence[ColumnElement[Any]]:
    """Return what to select of `events`; in an old ledger none is packed."""
    if _version(connection) >= 7:
        return tuple(events.c)
    lacking = {"packed": null().label("packed")}
    return tuple(lacking.get(column.name, column) for column in events.c)


def has_table(connection: Connection, table: Table) -> bool:
    """Return whether the layout, which may be an older one, has this table."""
    since = {client_keys.name: 4, client_organisations.name: 6, handles.name: 7}
    return _version(connection) >= since.get(table.name, 0)


def holds_hashes(connection: Connection) -> bool:
    """Return whether hashes of states and files have a place: not in an old ledger."""
    return _version(connection) >= 5


def check_writable(connection: Connection) -> None:
    """Write what is there already: a read-only file fails now, not after a round."""
    connection.execute(update(schema).values(version=VERSION))


def _version(connection: Connection) -> int:
    return connection.scalar(select(schema.c.version)) or 0
