"""The durable ledger: one transaction per round, one writer, any number of readers.

A commit waits for readers, so a ledger is read piece by piece: no transaction of
`Ledger.pieces` lasts longer than it takes to fetch a few megabytes, which are parsed and
verified after it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path

from sqlalchemy import func, select

from covey.base.errors import LedgerError, LedgerMismatch
from covey.ledger import rows, tables
from covey.ledger.backends import Backend, Database, backend_of, errors_explained
from covey.ledger.chain import GENESIS, Link, Record, counts, first_difference, torn, verify
from covey.ledger.client_tables import ClientTables
from covey.ledger.rows import FileHashes

EVENTS = tables.events.c


@dataclass(frozen=True, slots=True)
class Overview:
    """What a ledger's newest rows say; the chain before them is not verified.

    Attributes:
        events: how many there are.
        last_kind: of the newest event; "": there is none.
        written_at: when that was recorded, ISO 8601; None: never.
        last_round: the newest round that counts.
        clients: those whose names are known: they have not left.
    """

    events: int
    head: str
    last_kind: str
    written_at: str | None
    last_round: int | None
    clients: int


class Ledger(ClientTables):
    """The record of one run; close it, or use it in a `with` block.

    It is in an SQLite file, or in a PostgreSQL database that many runs may share:
    `postgresql://USER@HOST/DATABASE?run=NAME` keeps it in the schema NAME.

    >>> with Ledger.create("runs/first/ledger.sqlite", clock=utc_now) as ledger:
    ...     head = ledger.append(0, [Record(0, "cohort_sampled", {"clients": 3})])
    """

    __slots__ = ()

    @classmethod
    def create(cls, location: str | Path, clock: Callable[[], str]) -> "Ledger":
        """Begin a ledger where there is none; `clock` says when a round is written.

        Raises:
            LedgerError: there is a ledger already, or it cannot be written there.
            LedgerLocked: another process is writing it.
        """
        backend = backend_of(location)
        with cls._writing(backend, clock) as ledger:
            with ledger._database.reading() as connection:
                backend.prepare(connection)
                tables.lay_out(connection, ledger.location)
                rows.seal_tables(connection)
            return ledger

    @classmethod
    def open(
        cls, location: str | Path, clock: Callable[[], str], after: Link | None = None
    ) -> "Ledger":
        """Open a ledger to carry it on, once its chain is verified.

        Args:
            location: a file, or the URL of a database.
            clock: says when something is written.
            after: the end of what the caller has verified; None: nothing.

        Raises:
            LedgerError: there is no ledger, or it is broken or cannot be written.
            LedgerLocked: another process is writing it.
        """
        backend = _existing(location)
        with cls._writing(backend, clock) as ledger:
            with ledger._database.reading() as connection:
                tables.check_version(connection, ledger.location)
                tables.check_writable(connection)
                backend.check(connection)
                rows.check_tables(connection)
            ledger.verify(after)
            return ledger

    @classmethod
    def read(cls, location: str | Path) -> "Ledger":
        """Open a ledger to look at it, even while another process writes it.

        Raises:
            LedgerError: there is no ledger, or it cannot be read.
        """
        backend = _existing(location)
        ledger = cls(str(backend), Database(backend, backend.reader()))
        with ledger._database.reading() as connection:
            tables.check_version(connection, ledger.location)
            rows.check_tables(connection)
        return ledger

    @classmethod
    def exists(cls, location: str | Path) -> bool:
        """Return whether a ledger was begun there, of whatever version.

        Raises:
            LedgerError: the file or the database cannot be read.
        """
        backend = backend_of(location)
        with errors_explained(backend):
            if not backend.exists():
                return False
            with backend.reader().begin() as connection:
                return tables.is_laid_out(connection)

    @property
    def files(self) -> FileHashes:
        """The hashes of the run's states and other files."""
        return FileHashes(self._database)

    def append(self, round_index: int, records: Sequence[Record]) -> list[Link]:
        """Record a round, all of it or nothing, and return its links.

        Raises:
            LedgerError: the round is recorded already, comes before the last one of
                the current events, is empty, or cannot be written.
        """
        with self._database.writing() as connection:
            last = rows.last_round(connection)
            if last is not None and round_index <= last:
                raise LedgerError(
                    f"A round must be recorded once and in order, found round {round_index} after "
                    f"{last} in {self.location}: compare a replayed round instead of appending it."
                )
            return rows.add(connection, round_index, records, self._clock())

    def append_between(self, records: Sequence[Record]) -> list[Link]:
        """Record what happened between two rounds, and return its links.

        A record of kind `REWIND` makes the run go on before the round that it names.

        Raises:
            LedgerError: there is no record, one belongs to a round, or it cannot be written.
        """
        with self._database.writing() as connection:
            return rows.add(connection, None, records, self._clock())

    def pieces(self, after: Link | None = None) -> Iterator[list[Link]]:
        """Yield the chain, or what follows a verified link, verified and a piece at a time.

        Raises:
            LedgerError: it is broken, or `after` is not in it any more.
        """
        is_last = False
        while not is_last:
            position, head = (after.position, after.hash) if after else (0, GENESIS)
            with self._database.reading() as connection:
                at = select(EVENTS.hash).where(EVENTS.position == position)
                known = connection.scalar(at) if after else GENESIS
                links, is_last = rows.read_piece(connection, position)
            if known != head:
                raise torn(position, "what was read before, found something else")
            verify(links, after)
            if links:
                after = links[-1]
                yield links

    def links(self) -> Iterator[Link]:
        """Yield the whole chain in order, each piece once it is verified."""
        return chain.from_iterable(self.pieces())

    def verify(self, after: Link | None = None) -> None:
        """Check the whole chain, or what follows a verified link.

        Raises:
            LedgerError: it is broken; the message names the first bad position.
        """
        for _ in self.pieces(after):
            pass

    def replay(self) -> list[Record]:
        """Return everything that was recorded, in order, once it is verified."""
        return [one.record() for one in self.links()]

    def look(self, of_kinds: Collection[str]) -> list[Link]:
        """Return what still counts of some kinds of events, fast and not verified."""
        with self._database.reading() as connection:
            rewinds = rows.read_rewinds(connection)
            links = list(rows.links(connection, EVENTS.kind.in_([*of_kinds])))
        return [one for one in links if counts(rewinds, one.position, one.round_index)]

    def compare(self, round_index: int, records: Sequence[Record]) -> None:
        """Check that a replayed round is the one that counts; nothing is written.

        Raises:
            LedgerMismatch: it is not.
        """
        with self._database.reading() as connection:
            recorded = [one.record() for one in rows.read_round(connection, round_index)]
        difference = first_difference(recorded, records)
        if difference:
            raise LedgerMismatch(
                f"Round {round_index} must replay as {self.location} recorded it, found that "
                f"{difference}: resume with its settings, data and version of covey, or begin anew."
            )

    def last_round(self) -> int | None:
        """Return the index of the newest round that counts."""
        with self._database.reading() as connection:
            return rows.last_round(connection)

    def head(self) -> str:
        """Return the newest hash, which commits to the whole history."""
        with self._database.reading() as connection:
            last = rows.newest(connection)
            return last.hash if last else GENESIS

    def is_being_written(self) -> bool:
        """Return whether some process holds the right to write."""
        with errors_explained(self._database.backend):
            return self._database.backend.is_locked()

    def overview(self) -> Overview:
        """Return how far the run is, without reading or verifying what came before."""
        named = select(func.count()).select_from(tables.clients)
        when = select(tables.clock.c.written_at).order_by(tables.clock.c.position.desc()).limit(1)
        with self._database.reading() as connection:
            last = rows.newest(connection)
            return Overview(
                events=last.position if last else 0,
                head=last.hash if last else GENESIS,
                last_kind=last.kind if last else "",
                written_at=connection.scalar(when),
                last_round=rows.last_round(connection),
                clients=connection.scalar(named) or 0,
            )

    def times(self) -> dict[int, str]:
        """Return when each entry was written, by the position of its last event."""
        with self._database.reading() as connection:
            query = select(tables.clock).order_by(tables.clock.c.position)
            return dict(map(tuple, connection.execute(query)))

    def seconds_per_round(self) -> list[float]:
        """Return how long each entry took to follow the one before, in seconds."""
        stamps = map(datetime.fromisoformat, self.times().values())
        return [(b - a).total_seconds() for a, b in pairwise(stamps)]

    def check(self) -> None:
        """Let the database check its own file.

        Raises:
            LedgerError: a page or an index is damaged.
        """
        with self._database.reading() as connection:
            self._database.backend.check(connection)

    def scrub(self) -> None:
        """Overwrite what is left of erased names; may be done again at any time.

        Afterwards an SQLite ledger's files hold them nowhere. On PostgreSQL its
        write-ahead log, backups and replicas are not covered, nor the server's own log.
        """
        self._database.check_writer()
        with errors_explained(self._database.backend):
            self._database.backend.scrub()

    def close(self) -> None:
        """Let another process write."""
        if self._database.lock:
            self._database.lock.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    @contextmanager
    def _writing(cls, backend: Backend, clock: Callable[[], str]) -> Iterator["Ledger"]:
        """Lend a ledger for writing, closed again if the block fails."""
        with errors_explained(backend):
            database = Database(backend, backend.writer(), backend.lock())
        ledger = cls(str(backend), database, clock)
        try:
            yield ledger
        except BaseException:
            ledger.close()
            raise


def _existing(location: str | Path) -> Backend:
    backend = backend_of(location)
    with errors_explained(backend):
        if backend.exists():
            return backend
    raise LedgerError(
        f"A ledger must be at {backend}, found none: check the path; a run makes it at its start."
    )
