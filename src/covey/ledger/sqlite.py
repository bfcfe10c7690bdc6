"""How a ledger lives in one SQLite file: its connections, its lock, its failures."""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError

from covey.errors import LedgerError, LedgerLocked

__all__ = ["database_file", "explained", "reader", "take_lock", "writer"]

BUSY_SECONDS = 30.0  # a commit waits for readers to finish, and they for it


def database_file(where: str | Path) -> Path:
    """Return the file that a path or a `sqlite:///` URL names."""
    if "://" not in str(where):
        return Path(where)
    url = make_url(str(where))
    if url.get_backend_name() == "sqlite" and url.database:
        return Path(url.database)
    raise LedgerError(
        f"A ledger must be an SQLite file, but its URL is {url}: other databases are "
        f"not built yet. Give a path, or sqlite:///PATH."
    )


def writer(path: Path) -> Engine:
    """Return connections that take the write lock as soon as a transaction begins.

    `EXTRA` is `FULL`, and also makes the end of a transaction outlive a power cut.
    """
    return _engine(path, "rwc", "PRAGMA synchronous = EXTRA", "BEGIN IMMEDIATE")


def reader(path: Path) -> Engine:
    """Return connections that change nothing, beside a writer if there is one.

    They open the file for writing where they may: after a kill, whoever comes first
    must put back what the dead transaction had begun to change.
    """
    return _engine(path, "rw", "PRAGMA query_only = ON", "BEGIN")


def _engine(path: Path, mode: str, pragma: str, begin: str) -> Engine:
    def connect() -> sqlite3.Connection:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        # isolation_level None: transactions begin where `begin` says, nowhere else
        return sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )

    # hide_parameters: an error's text must not show a client's name
    engine = create_engine(
        "sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True
    )

    @event.listens_for(engine, "begin")
    def begin_explicitly(connection: Connection) -> None:
        connection.exec_driver_sql(pragma)
        connection.exec_driver_sql(begin)

    return engine


def take_lock(path: Path) -> TextIO:
    """Take the right to write the ledger at `path`, until the result is closed.

    The operating system gives it back when the process ends, however it ends; the
    empty file that stays behind locks nobody out.

    Raises:
        LedgerLocked: somebody else has it.
    """
    lock = path.with_suffix(".lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise LedgerLocked(
            f"Only one process can write the ledger {path}, and another one does. "
            f"Wait until it ends, or stop it; reading is always possible."
        ) from error
    return lock


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn failures of the file or the database into a LedgerError."""
    try:
        yield
    # UnicodeDecodeError: SQLite quotes a damaged file in its message as it stands
    except (DBAPIError, UnicodeDecodeError, OSError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise LedgerError(
            f"{path} must be a covey ledger that can be used here, but: {reason}. "
            f"Check the file, its permissions and the free space, or restore a copy."
        ) from error
