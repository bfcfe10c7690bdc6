"""Where a ledger can live, and what every such place can do."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from covey.errors import LedgerError, LedgerUnavailable
from covey.ledger.location import resolved
from covey.ledger.postgres import PostgresRun
from covey.ledger.sqlite import SqliteFile

__all__ = ["Backend", "Lock", "backend_of", "errors_explained"]


@runtime_checkable
class Lock(Protocol):
    """The right to write, until it is closed or its process ends."""

    def check(self) -> None:
        """Raise LedgerLocked if the right is lost."""
        ...

    def close(self) -> None:
        """Let another process write."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A database with room for one ledger; printed, it shows no password."""

    remedy: ClassVar[str]
    """What to do when it fails."""

    def exists(self) -> bool:
        """Return False where it is certain that there is no ledger."""
        ...

    def lock(self) -> Lock:
        """Acquire the write lock; raise LedgerLocked if another process holds it."""
        ...

    def is_locked(self) -> bool:
        """Return whether some process holds the write lock; none is made to wait."""
        ...

    def writer(self) -> Engine:
        """Return connections whose transactions last once they are committed."""
        ...

    def reader(self) -> Engine:
        """Return connections that change nothing, beside a writer if there is one."""
        ...

    def prepare(self, connection: Connection) -> None:
        """Make what the tables will lie in."""
        ...

    def check(self, connection: Connection) -> None:
        """Raise LedgerError where the database itself knows that it is damaged."""
        ...

    def scrub(self) -> None:
        """Overwrite what is left of erased rows."""
        ...


def backend_of(location: str | Path) -> Backend:
    """Return the place that a path or an SQLAlchemy URL names.

    `env:NAME` and `file:PATH` stand for the URL in an environment variable or a file.

    Raises:
        LedgerUnavailable: no ledger can live there.
    """
    location = resolved(location)
    if "://" not in str(location):
        return SqliteFile(Path(location))
    try:
        url = make_url(str(location))
    except (ArgumentError, ValueError):
        # the cause would show the URL, and with it a password
        raise LedgerUnavailable(
            "A ledger's URL must be one that SQLAlchemy can read, but it is not. "
            "Give a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE?run=NAME."
        ) from None
    if url.get_backend_name() == "sqlite" and url.database:
        return SqliteFile(Path(url.database))
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return PostgresRun.at(url)
    shown = url.set(query={}).render_as_string(hide_password=True)
    raise LedgerUnavailable(
        f"A ledger lives in SQLite or PostgreSQL, but its URL is {shown}: other "
        f"databases and drivers are not built. Give a path, sqlite:///PATH or "
        f"postgresql://USER@HOST/DATABASE?run=NAME."
    )


@contextmanager
def errors_explained(place: Backend) -> Iterator[None]:
    """Turn failures of the file or the database into a LedgerError."""
    try:
        yield
    # UnicodeDecodeError: SQLite quotes a damaged file in its message as it stands
    except (DBAPIError, UnicodeDecodeError, JSONDecodeError, OSError) as error:
        reason = str(error.orig if isinstance(error, DBAPIError) else error)
        closed = isinstance(error, OperationalError | OSError)
        # its first line: PostgreSQL quotes the row, a client's name, in the next ones
        raise (LedgerUnavailable if closed else LedgerError)(
            f"{place} must be a covey ledger that can be used here, but: "
            f"{reason.partition(chr(10))[0]}. {place.remedy}"
        ) from error
