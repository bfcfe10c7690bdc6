"""Where a ledger can live: one SQLite file, or a PostgreSQL schema."""

import hashlib
import os
import re
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sql
from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from covey.base.errors import LedgerError, LedgerLocked, LedgerUnavailable
from covey.base.files import bounded, read_text
from covey.base.names import how_to_install
from covey.ledger.tables import clients, requests

ENVIRONMENT, FILE = "env:", "file:"


CONNECT_SECONDS = "10"
"""How long a database may take to answer, unless its URL says so."""

BUSY_SECONDS = 30.0  # a commit waits for readers to finish, and they for it

LOOK_SECONDS = 0.1  # `is_locked` holds a lock for an instant, which stops no writer

RUN = re.compile(r"[a-z][a-z0-9_]{0,62}")

HELD = sql.text("SELECT true FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")


def _resolved(location: str) -> str:
    """Return what stands where `env:NAME` or `file:PATH` says: never a part of a message.

    Raises:
        LedgerUnavailable: nothing does, or others may read the file.
    """
    if location.startswith(ENVIRONMENT):
        name = location.removeprefix(ENVIRONMENT)
        if url := os.environ.get(name, "").strip():
            return url
        raise LedgerUnavailable(
            f"The environment variable {name} must hold the ledger's URL, found none: set it, for "
            f"example to postgresql://USER@HOST/DATABASE?run=NAME."
        )
    path = Path(location.removeprefix(FILE))
    try:
        mode, url = path.stat().st_mode, read_text(path).strip()
    except (OSError, ValueError) as error:
        raise LedgerUnavailable(
            f"{path} must hold the ledger's URL alone, found {type(error).__name__}: put it there."
        ) from None
    if sys.platform != "win32" and stat.S_IMODE(mode) & 0o077:
        raise LedgerUnavailable(
            f"{path} must be its owner's alone, found mode {stat.S_IMODE(mode):04o}: run `chmod "
            f"600 {path}`, and change the ledger's password if others could read it."
        )
    return url


@dataclass(frozen=True, slots=True)
class Lock:
    """The right to write, until it is closed or its process ends, however it ends.

    Attributes:
        check: raises LedgerLocked if the right is lost.
        close: lets another process write.
    """

    check: Callable[[], None]
    close: Callable[[], None]


def _another_writes(ledger: "SqliteFile | PostgresRun") -> LedgerLocked:
    return LedgerLocked(
        f"The ledger {ledger} must have one writer at a time, found another process: wait until it "
        f"ends, or stop it; reading is always possible."
    )


def _engine(url: str | URL, *at_begin: str, **options: Any) -> Engine:  # noqa: ANN401
    """Return connections whose transactions begin with these statements."""
    # hide_parameters: an error's text must not show a client's name
    engine = sql.create_engine(url, poolclass=sql.NullPool, hide_parameters=True, **options)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        for statement in at_begin:
            connection.exec_driver_sql(statement).close()

    return engine


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """One file, and beside it an empty one that only carries the lock.

    Attributes:
        remedy: what to do when it fails.
    """

    path: Path

    remedy: ClassVar[str] = "check the file, its permissions and the free space, or restore a copy."

    def __str__(self) -> str:
        return str(self.path)

    def masked(self, reason: str) -> str:
        """Return a failure's reason as it is."""
        return reason

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.path.is_file()

    def lock(self) -> Lock:
        """Take the right to write; the empty file that stays behind locks no process out.

        Raises:
            LedgerLocked: somebody else has it.
        """
        # no soft lock, a file that locks by being there: a kill would leave it for good
        place = self.path.with_suffix(".lock")
        place.parent.stat()  # the library would make a folder that is missing
        lock = FileLock(place, mode=0o600, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire(timeout=LOOK_SECONDS, poll_interval=LOOK_SECONDS / 4)
        except Timeout as error:
            raise _another_writes(self) from error
        # the operating system takes it from no living process
        return Lock(check=lambda: None, close=lock.release)

    def is_locked(self) -> bool:
        """Return whether some process holds the write lock; nothing is written."""
        place = self.path.with_suffix(".lock")
        if not place.is_file():
            return False
        if sys.platform == "win32":
            try:
                self.lock().close()
            except LedgerLocked:
                return True
            return False
        import fcntl  # which Windows has not

        with place.open("rb") as handle:  # closed, it is locked no more
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def writer(self) -> Engine:
        """Return connections that take the write lock as soon as a transaction begins.

        `EXTRA` is `FULL`, and also makes the end of a transaction outlive a power cut.
        """
        return self._engine(
            "rwc", "PRAGMA synchronous = EXTRA", "PRAGMA secure_delete = ON", "BEGIN IMMEDIATE"
        )

    def reader(self) -> Engine:
        """Return connections that change nothing, beside a writer if there is one.

        They open the file for writing where they may: after a kill, the first reader
        must put back what the dead transaction had begun to change.
        """
        return self._engine("rw", "PRAGMA query_only = ON", "BEGIN")

    def prepare(self, connection: Connection) -> None:
        """Do nothing: the first connection makes the file."""

    def check(self, connection: Connection) -> None:
        """Check every page and index of the file.

        Raises:
            LedgerError: one is damaged.
        """
        result = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if result != "ok":
            raise LedgerError(f"{self} must be whole, found {result}: {self.remedy}")

    def scrub(self) -> None:
        """Rewrite the file, so that no page holds what was erased.

        `secure_delete` overwrites a row where it lies; pages that were split or merged
        before can hold another copy.

        Raises:
            LedgerError: somebody turned write-ahead logging on and is reading.
        """
        with self._engine("rw", "PRAGMA secure_delete = ON").connect() as connection:
            connection.exec_driver_sql("VACUUM")
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar()
        if busy:
            raise LedgerError(
                f"The write-ahead log of {self} must be emptied to erase a name, found another "
                f"process reading: stop it, and scrub again."
            )

    def _engine(self, mode: str, *at_begin: str) -> Engine:
        def connect() -> sqlite3.Connection:
            if mode == "rwc" and not self.path.exists():  # SQLite asks the umask alone
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            # isolation_level None: transactions begin where `at_begin` says, only there
            opened = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            return bounded(opened)

        return _engine("sqlite://", *at_begin, creator=connect)


@dataclass(frozen=True, slots=True)
class PostgresRun:
    """One run's schema in a database that many runs may share.

    Attributes:
        url: the database, without the run.
        secret: where the URL stands, if no setting and no command shows it: `env:NAME`.
        remedy: what to do when it fails.
    """

    url: URL
    run: str
    secret: str = ""

    remedy: ClassVar[str] = "check the URL, your rights, and that the server runs and has space."

    def __str__(self) -> str:
        if self.secret:
            return self.secret
        # no user: the rest of the query could hold a password too
        query = {"run": self.run, **{k: v for k, v in self.url.query.items() if k == "host"}}
        shown = URL.create("postgresql", host=self.url.host, port=self.url.port, query=query)
        return shown.set(database=self.url.database).render_as_string()

    def masked(self, reason: str) -> str:
        """Return a failure's reason without what only a secret URL says."""
        url = self.url
        names = [url.username, url.password, url.host, url.port, url.database, self.run]
        hidden = {str(secret) for secret in (*names, *url.query.values()) if secret}
        for word in sorted(hidden, key=len, reverse=True) if self.secret else ():
            reason = reason.replace(word, "***")
        return reason

    def exists(self) -> bool:
        """Return True: only the database can say."""
        return True

    def lock(self) -> Lock:
        """Take an advisory lock on a connection of its own.

        Raises:
            LedgerLocked: somebody else has it.
        """
        # the server takes a moment to notice that a killed writer is gone
        connection = self._engine("AUTOCOMMIT", "SET lock_timeout = '1s'").connect()
        try:
            connection.execute(sql.select(sql.func.pg_advisory_lock(self._key())))
        except OperationalError as error:
            connection.close()
            if getattr(error.orig, "sqlstate", None) == "55P03":  # lock_not_available
                raise _another_writes(self) from error
            raise
        return Lock(partial(self._check_held, connection), partial(_let_go, connection))

    def _check_held(self, connection: Connection) -> None:
        with suppress(SQLAlchemyError):
            if connection.scalar(HELD):
                return
        raise LedgerLocked(
            f"The lock of {self} must be held, found that its session ended: open the ledger again."
        )

    def is_locked(self) -> bool:
        """Return whether some process holds the write lock."""
        free = sql.select(sql.func.pg_try_advisory_xact_lock_shared(self._key()))
        with self._engine("AUTOCOMMIT").connect() as connection:
            return not connection.scalar(free)

    def _key(self) -> int:
        digest = hashlib.sha256(f"covey ledger {self.run}".encode()).digest()
        return int.from_bytes(digest[:8], signed=True)

    def writer(self) -> Engine:
        """Return connections whose commits wait until the server's disk has them."""
        return self._engine("REPEATABLE READ", "SET synchronous_commit = on")

    def reader(self) -> Engine:
        """Return connections that change nothing, beside a writer if there is one."""
        return self._engine("REPEATABLE READ", "SET TRANSACTION READ ONLY")

    def prepare(self, connection: Connection) -> None:
        """Make the schema; one that an administrator made for this run is used."""
        if self.run not in sql.inspect(connection).get_schema_names():
            connection.execute(CreateSchema(self.run))

    def check(self, connection: Connection) -> None:
        """Do nothing: the server checks its own pages."""

    def scrub(self) -> None:
        """Rewrite the tables that can be erased from, without their dead rows.

        Not covered: the server's write-ahead log, its backups and replicas, its own log
        of statements, and rows that an older transaction, still open, can see.
        """
        with self._engine("AUTOCOMMIT").connect() as connection:
            for table in (clients, requests):
                connection.exec_driver_sql(f'VACUUM (FULL) "{self.run}".{table.name}')

    def _engine(self, isolation: str, *at_begin: str) -> Engine:
        begin = f'SET search_path = "{self.run}"', *at_begin
        try:
            return _engine(self.url, *begin, isolation_level=isolation)
        except ImportError as error:
            raise LedgerUnavailable(
                f"{self} needs the package psycopg, found {error}: {how_to_install('postgres')}."
            ) from error


def _let_go(connection: Connection) -> None:
    # a server frees what an ended session held only once it has noticed the end
    with connection, suppress(SQLAlchemyError):
        connection.execute(sql.select(sql.func.pg_advisory_unlock_all()))


Backend = SqliteFile | PostgresRun
"""A database with room for one ledger; printed, it shows no password."""


def backend_of(location: str | Path) -> Backend:
    """Return the place that a path or an SQLAlchemy URL names.

    `env:NAME` and `file:PATH` stand for the URL of a PostgreSQL database in an environment
    variable or a file.

    Raises:
        LedgerUnavailable: no ledger can live there, or it would be reached without TLS.
    """
    text = str(location)
    if isinstance(location, Path):
        return SqliteFile(location)
    if text.startswith((ENVIRONMENT, FILE)):
        return _postgres(_resolved(text), secret=text)
    if "://" not in text:
        return SqliteFile(Path(text))
    with suppress(ArgumentError, ValueError):
        url = sql.make_url(text)
        if url.get_backend_name() == "sqlite" and url.database:
            if "?" in text:
                raise LedgerUnavailable(
                    "A SQLite URL must be sqlite:///PATH, found a ? in it: give the bare path."
                )
            return SqliteFile(Path(url.database))
    return _postgres(text)


def _postgres(text: str, secret: str = "") -> PostgresRun:
    """Return the run that a URL names; no error has a word of it."""
    url, subject = None, secret or "The URL of a ledger"
    with suppress(ArgumentError, ValueError):
        url = sql.make_url(text)
    if url is None or url.drivername not in ("postgresql", "postgresql+psycopg"):
        raise LedgerUnavailable(
            f"{subject} must be a place in SQLite or PostgreSQL, found none: give a path, "
            f"sqlite:///PATH or postgresql://USER@HOST/DATABASE?run=NAME, or its env: or file:."
        )
    run = url.query.get("run", "")
    if not isinstance(run, str) or not RUN.fullmatch(run):
        raise LedgerUnavailable(
            f"{subject} must name its run, a letter a-z and then up to 62 of a-z, 0-9 and _, found "
            f"none: end the URL with ?run=NAME."
        )
    bare = url.set(drivername="postgresql+psycopg").difference_update_query(["run"])
    if "connect_timeout" not in bare.query:
        bare = bare.update_query_dict({"connect_timeout": CONNECT_SECONDS})
    backend = PostgresRun(bare, run, secret)
    if not _is_local(bare) and not _says_tls(bare):
        raise LedgerUnavailable(
            f"The URL of {backend}, on another host, must say how it is encrypted, found nothing: "
            f"add &sslmode=verify-full (verify-ca, require), or =disable if nobody else reads it."
        )
    return backend


def _is_local(url: URL) -> bool:
    """Say whether libpq stays on this machine, with this URL and its own environment."""
    environment = os.environ.get
    elsewhere = ("service", "conninfo", "dsn")
    if any(url.query.get(key) for key in elsewhere) or environment("PGSERVICE"):
        return False
    named = [url.host, url.query.get("host"), url.query.get("hostaddr")]
    lists = [value for value in named if value] or [environment("PGHOST")]
    lists.append(environment("PGHOSTADDR"))
    texts = [",".join(value) if isinstance(value, tuple) else value for value in lists if value]
    hosts = [host for text in texts for host in text.split(",")]
    return all(host.startswith(("/", "@")) or _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    return re.fullmatch(r"(localhost|127\.0\.0\.1|\[?::1\]?)(:\d+)?", host) is not None


def _says_tls(url: URL) -> bool:
    """Say whether the URL chooses itself, or the user's environment asks for TLS."""
    wanted = ("require", "verify-ca", "verify-full")
    return bool(url.query.get("sslmode")) or os.environ.get("PGSSLMODE") in wanted


def describe(location: str) -> str:
    """Name a ledger's place without reading what `env:` or `file:` stands for."""
    if location.startswith((ENVIRONMENT, FILE)):
        return location
    with suppress(LedgerUnavailable):
        return str(backend_of(location))
    with suppress(ArgumentError, ValueError):
        url = sql.make_url(location)
        return f"{url.drivername.partition('+')[0]} on {url.host}"
    return "a URL that cannot be read"


@dataclass(frozen=True, slots=True, eq=False)
class Database:
    """Transactions in one place, to read and, with its lock, to write."""

    backend: Backend
    engine: Engine
    lock: Lock | None = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a transaction.

        Raises:
            LedgerError: the file or the database fails.
        """
        with errors_explained(self.backend), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a transaction that may write.

        Raises:
            LedgerError: the file or the database fails, or was opened to be read.
            LedgerLocked: the right to write is lost.
        """
        self.check_writer()
        with self.reading() as connection:
            yield connection

    def check_writer(self) -> None:
        """Refuse to write without the right to."""
        if self.lock is None:
            raise LedgerError(
                f"{self.backend} must be writable, found it open to read: use Ledger.open."
            )
        self.lock.check()


@contextmanager
def errors_explained(place: Backend) -> Iterator[None]:
    """Turn failures of the file or the database into a LedgerError."""
    try:
        yield
    # UnicodeError: SQLite quotes a damaged file in its message as it stands
    except (DBAPIError, UnicodeError, JSONDecodeError, OSError) as error:
        reason = place.masked(str(error.orig if isinstance(error, DBAPIError) else error))
        closed = isinstance(error, OperationalError | OSError)
        # its first line: PostgreSQL quotes the row, a client's name, in the next ones
        raise (LedgerUnavailable if closed else LedgerError)(
            f"{place} must be a usable ledger, found {reason.partition(chr(10))[0]}: {place.remedy}"
        ) from (None if isinstance(place, PostgresRun) and place.secret else error)
