"""How a ledger lives in one SQLite file: its connections, its lock, its erasure."""

import os
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, NullPool, create_engine, event

from covey.errors import LedgerError, LedgerLocked

__all__ = ["SqliteFile"]

BUSY_SECONDS = 30.0  # a commit waits for readers to finish, and they for it
LOOK_SECONDS = 0.1  # `is_locked` holds a lock for an instant, which stops no writer


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """One file, and beside it an empty one that only carries the lock."""

    path: Path

    remedy: ClassVar[str] = (
        "Check the file, its permissions and the free space, or restore a copy."
    )

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.path.is_file()

    def lock(self) -> "_FileLock":
        """Take the right to write.

        The operating system gives it back when the process ends, however it ends; the
        empty file that stays behind locks nobody out.

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
            raise LedgerLocked(
                f"Only one process can write the ledger {self}, and another one does. "
                f"Wait until it ends, or stop it; reading is always possible."
            ) from error
        return _FileLock(lock)

    def is_locked(self) -> bool:
        """Return whether some process holds the write lock; nothing is written."""
        place = self.path.with_suffix(".lock")
        if not place.is_file():
            return False
        if sys.platform == "win32":
            return self._is_refused()
        import fcntl  # which Windows has not

        handle = os.open(place, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)  # and with it what was locked
        return False

    def _is_refused(self) -> bool:
        try:
            self.lock().close()
        except LedgerLocked:
            return True
        return False

    def writer(self) -> Engine:
        """Return connections that take the write lock as soon as a transaction begins.

        `EXTRA` is `FULL`, and also makes the end of a transaction outlive a power cut.
        """
        return self._engine(
            "rwc",
            "PRAGMA synchronous = EXTRA",
            "PRAGMA secure_delete = ON",
            "BEGIN IMMEDIATE",
        )

    def reader(self) -> Engine:
        """Return connections that change nothing, beside a writer if there is one.

        They open the file for writing where they may: after a kill, whoever comes first
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
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if found != "ok":
            raise LedgerError(f"The file {self} is damaged: {found}. {self.remedy}")

    def scrub(self) -> None:
        """Rewrite the file, so that no page holds what was erased.

        `secure_delete` overwrites a row where it lies; pages that were split or merged
        before can hold another copy.

        Raises:
            LedgerError: somebody turned write-ahead logging on and is reading.
        """
        with self._engine("rw", "PRAGMA secure_delete = ON").connect() as connection:
            connection.exec_driver_sql("VACUUM")
            busy = connection.exec_driver_sql(
                "PRAGMA wal_checkpoint(TRUNCATE)"
            ).scalar()
        if busy:
            raise LedgerError(
                f"The write-ahead log of {self} must be emptied to erase a name, but "
                f"another process is reading. Stop it, and scrub again."
            )

    def _engine(self, mode: str, *at_begin: str) -> Engine:
        def connect() -> sqlite3.Connection:
            if mode == "rwc" and not self.path.exists():  # SQLite asks the umask alone
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            # isolation_level None: transactions begin where `at_begin` says, only there
            return sqlite3.connect(
                uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None
            )

        # hide_parameters: an error's text must not show a client's name
        engine = create_engine(
            "sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True
        )

        @event.listens_for(engine, "begin")
        def begin_explicitly(connection: Connection) -> None:
            for statement in at_begin:
                connection.exec_driver_sql(statement).close()

        return engine


@dataclass(frozen=True, slots=True)
class _FileLock:
    file: FileLock

    def check(self) -> None:
        """Do nothing: the operating system takes it from no living process."""

    def close(self) -> None:
        self.file.release()
