"""How a ledger lives in a PostgreSQL schema, beside those of other runs."""

import hashlib
import re
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import ClassVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    create_engine,
    event,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from covey.errors import LedgerLocked, LedgerUnavailable
from covey.ledger.tables import client_keys, client_organisations, clients, requests

__all__ = ["PostgresRun"]

RUN = re.compile(r"[a-z][a-z0-9_]{0,62}")
LOCK_NOT_AVAILABLE = "55P03"
# the server takes a moment to notice that a killed writer is gone
PATIENCE = "SET lock_timeout = '1s'"
HELD = text(
    "SELECT true FROM pg_locks "
    "WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()"
)

TAKEN = text(
    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND classid::bigint = :high AND objid::bigint = :low AND objsubid = 1 AND database = "
    "(SELECT oid FROM pg_database WHERE datname = current_database()))"
)


@dataclass(frozen=True, slots=True)
class PostgresRun:
    """One run's schema in a database that many runs may share.

    Attributes:
        url: the database, without the run.
    """

    url: URL
    run: str

    remedy: ClassVar[str] = (
        "Check the URL, the user's rights, and that the server runs and has space."
    )

    @classmethod
    def at(cls, url: URL) -> "PostgresRun":
        """Return the run that the URL's `run` names.

        Raises:
            LedgerUnavailable: it names none, or one that cannot name a schema.
        """
        run = url.query.get("run", "")
        if not isinstance(run, str) or not RUN.fullmatch(run):
            raise LedgerUnavailable(
                f"A ledger in PostgreSQL needs the name of its run, a letter a-z and "
                f"then up to 62 of a-z, 0-9 and _, but the URL says {run!r}. "
                f"End it with ?run=NAME."
            )
        bare = url.set(drivername="postgresql+psycopg").difference_update_query(["run"])
        return cls(bare, run)

    def __str__(self) -> str:
        # the rest of the query could hold a password too
        shown = self.url.set(drivername="postgresql", query={"run": self.run})
        return shown.render_as_string(hide_password=True)

    def exists(self) -> bool:
        """Return True: only the database knows."""
        return True

    def lock(self) -> "_SessionLock":
        """Acquire the write lock, an advisory lock on a separate connection.

        The server gives it back when the process ends, however it ends.

        Raises:
            LedgerLocked: somebody else has it.
        """
        key = int.from_bytes(self._key(), signed=True)
        connection = self._engine("AUTOCOMMIT", PATIENCE).connect()
        try:
            connection.execute(select(func.pg_advisory_lock(key)))
        except OperationalError as error:
            connection.close()
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            raise LedgerLocked(
                f"Only one process can write the ledger {self}, and another one does. "
                f"Wait until it ends, or stop it; reading is always possible."
            ) from error
        return _SessionLock(connection, str(self))

    def is_locked(self) -> bool:
        """Return whether some process holds the write lock; none is asked for."""
        high, low = (
            int.from_bytes(part) for part in (self._key()[:4], self._key()[4:])
        )
        with self._engine("AUTOCOMMIT").connect() as connection:
            return bool(connection.scalar(TAKEN, {"high": high, "low": low}))

    def _key(self) -> bytes:
        return hashlib.sha256(f"covey ledger {self.run}".encode()).digest()[:8]

    def writer(self) -> Engine:
        """Return connections whose commits wait until the server's disk has them."""
        return self._engine(
            "REPEATABLE READ", self._search_path(), "SET synchronous_commit = on"
        )

    def reader(self) -> Engine:
        """Return connections that change nothing, beside a writer if there is one."""
        return self._engine(
            "REPEATABLE READ", self._search_path(), "SET TRANSACTION READ ONLY"
        )

    def prepare(self, connection: Connection) -> None:
        """Make the schema; one that an administrator made for this run is used."""
        if self.run not in inspect(connection).get_schema_names():
            connection.execute(CreateSchema(self.run))

    def check(self, connection: Connection) -> None:
        """Do nothing: the server checks its own pages."""

    def scrub(self) -> None:
        """Rewrite the tables that can be erased from, without their dead rows.

        Not covered: the server's write-ahead log, its backups and replicas, its own log
        of statements, and rows that an older transaction, still open, can see.
        """
        with self._engine("AUTOCOMMIT").connect() as connection:
            for table in (clients, client_keys, client_organisations, requests):
                connection.exec_driver_sql(f'VACUUM (FULL) "{self.run}".{table.name}')

    def _search_path(self) -> str:
        return f'SET search_path = "{self.run}"'

    def _engine(self, isolation: str, *at_begin: str) -> Engine:
        try:
            # hide_parameters: an error's text must not show a client's name
            engine = create_engine(
                self.url,
                poolclass=NullPool,
                hide_parameters=True,
                isolation_level=isolation,
            )
        except ImportError as error:
            raise LedgerUnavailable(
                f"The ledger {self} needs the package psycopg, but it cannot be loaded "
                f"({error}). Install covey[postgres]."
            ) from error

        @event.listens_for(engine, "begin")
        def prepare(connection: Connection) -> None:
            for statement in at_begin:
                connection.exec_driver_sql(statement)

        return engine


@dataclass(frozen=True, slots=True)
class _SessionLock:
    connection: Connection
    location: str

    def check(self) -> None:
        try:
            held = self.connection.scalar(HELD)
        except SQLAlchemyError:
            held = None
        if not held:
            raise LedgerLocked(
                f"Only who holds its lock can write the ledger {self.location}, but the "
                f"server ended the session that held it. Open the ledger again."
            )

    def close(self) -> None:
        # a server frees what an ended session held only once it has noticed the end
        with closing(self.connection), suppress(SQLAlchemyError):
            self.connection.execute(select(func.pg_advisory_unlock_all()))
