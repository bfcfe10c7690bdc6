"""The durable ledger: one transaction per round, one writer, any number of readers.

A commit waits for readers, so who follows a ledger that grows reads it piece by piece: no
transaction of `Ledger.piece` lasts longer than it takes to fetch a few megabytes, which are
parsed and verified after it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, func, select, update

from covey.base.errors import LedgerError, LedgerMismatch
from covey.base.names import ClientName, Handle
from covey.ledger import requests as clients_and_requests
from covey.ledger import rows, tables
from covey.ledger.backends import Backend, Lock, backend_of, errors_explained
from covey.ledger.chain import GENESIS, Link, Record, counts, first_difference, rewound_to, verify
from covey.ledger.requests import NewRequest, Request, ServedRequest
from covey.ledger.rows import FileHashes, Place, check_tables, seal_tables

EVENTS = tables.events.c
ENDED = "RunEndedEarly"
"""The kind of a record between rounds after which no further round is played."""

MOST_BYTES = 4_000_000
"""Bytes of events that `Ledger.piece` fetches, or one round if that is longer."""


@dataclass(frozen=True, slots=True)
class Overview:
    """What a ledger's newest rows say; the chain before them is not verified.

    Attributes:
        events: how many there are.
        last_kind: of the newest event; "": there is none.
        written_at: when that was recorded, ISO 8601; "": never.
        last_round: the newest round that counts.
        first_round: what counts of round 0, where a run says how it began.
        ended: what says that the run ended early, if it did.
        clients: those whose names are known: they have not left.
    """

    events: int
    head: str
    last_kind: str
    written_at: str
    last_round: int | None
    first_round: tuple[Record, ...]
    ended: tuple[Record, ...]
    clients: int


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """The record of one run; close it, or use it in a `with` block.

    It lives in an SQLite file, or in a PostgreSQL database that many runs may share:
    `postgresql://USER@HOST/DATABASE?run=NAME` keeps it in the schema NAME.

    >>> with Ledger.create("runs/first/ledger.sqlite", clock=utc_now) as ledger:
    ...     head = ledger.append(0, [Record(0, "cohort_sampled", {"clients": 3})])

    Attributes:
        location: the place, as messages name it: without a password.
    """

    location: str
    _backend: Backend = field(repr=False)
    _engine: Engine = field(repr=False)
    _lock: Lock | None = field(default=None, repr=False)
    _clock: Callable[[], str] = field(default=str, repr=False)

    @classmethod
    def create(cls, location: str | Path, clock: Callable[[], str]) -> "Ledger":
        """Begin a ledger where there is none; `clock` says when a round is written.

        Raises:
            LedgerError: there is a ledger already, or it cannot be written there.
            LedgerLocked: another process is writing it.
        """
        backend = backend_of(location)
        with cls._writing(backend, clock) as ledger:
            with ledger._reading() as connection:
                backend.prepare(connection)
                tables.lay_out(connection, ledger.location)
                seal_tables(connection)
            return ledger

    @classmethod
    def open(cls, location: str | Path, clock: Callable[[], str]) -> "Ledger":
        """Open a ledger to carry it on, once its whole chain is verified.

        Raises:
            LedgerError: there is no ledger, or it is broken or cannot be written.
            LedgerLocked: another process is writing it.
        """
        with cls._writing(_existing(location), clock) as ledger:
            with ledger._reading() as connection:
                tables.check_version(connection, ledger.location)
                tables.check_writable(connection)
                ledger._backend.check(connection)
                check_tables(connection)
                verify(rows.links(connection))
            return ledger

    @classmethod
    def read(cls, location: str | Path) -> "Ledger":
        """Open a ledger to look at it, even while another process writes it.

        Raises:
            LedgerError: there is no ledger, or it cannot be read.
        """
        backend = _existing(location)
        ledger = cls(str(backend), backend, backend.reader())
        with ledger._reading() as connection:
            tables.check_version(connection, ledger.location)
            check_tables(connection)
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
        return FileHashes(self._reading, self._writing_now)

    def append(self, round_index: int, records: Sequence[Record]) -> str:
        """Record a round, all of it or nothing, and return the new head.

        Raises:
            LedgerError: the round is recorded already, comes before the last one of
                the current story, is empty, or cannot be written.
        """
        _check_entry(records, round_index)
        with self._writing_now() as connection:
            last = rows.last_round(connection)
            if last is not None and round_index <= last:
                raise LedgerError(
                    f"A round is recorded once and in order, but round {round_index} "
                    f"comes after round {last} in {self.location}. Compare a replayed "
                    f"round instead of appending it."
                )
            return rows.add(connection, records, self._clock())

    def append_between(
        self, records: Sequence[Record], joined: Mapping[Handle, ClientName] | None = None
    ) -> str:
        """Record what happened between two rounds, and return the new head.

        A record of kind `REWIND` makes the story go on before the round that it names.

        Args:
            records: what happened.
            joined: clients that it enrols, in the same transaction.

        Raises:
            LedgerError: there is no record, one belongs to a round, a client cannot be
                enrolled, or it cannot be written.
        """
        _check_entry(records)
        with self._writing_now() as connection:
            if joined:
                clients_and_requests.bind_names(connection, joined, self.location)
                seal_tables(connection)
            return rows.add(connection, records, self._clock())

    def replace_names(
        self, changed: Mapping[Handle, ClientName | None], records: Sequence[Record]
    ) -> str:
        """Record what happened, and change or erase names, in one transaction.

        For who keeps no tombstones; a run's clients leave by `serve`. Scrub the ledger
        next: the names' last traces go with it.

        Args:
            changed: what each handle stands for from now on; None: nothing.
            records: what happened, between two rounds.

        Returns:
            The new head.

        Raises:
            LedgerError: there is no record, or it cannot be written.
        """
        _check_entry(records)
        with self._writing_now() as connection:
            for handle, name in changed.items():
                row = tables.clients.c.handle == handle
                connection.execute(
                    delete(tables.clients).where(row)
                    if name is None
                    else update(tables.clients).where(row).values(name=name)
                )
            seal_tables(connection, [tables.clients])
            return rows.add(connection, records, self._clock())

    def links(self, after: Link | None = None) -> list[Link]:
        """Return the whole chain in order, once it is verified.

        Args:
            after: the end of a chain that was read and verified before. If this one
                holds it, only what follows is read and returned.

        Raises:
            LedgerError: it is broken; the message names the first bad position.
        """
        with self._reading() as connection:
            if after and rows.hash_at(connection, after.position) != after.hash:
                after = None
            later = [EVENTS.position > after.position] if after else []
            links = list(rows.links(connection, *later))
        verify(links, after)
        return links

    def piece(
        self, after: Link | None, most_bytes: int = MOST_BYTES
    ) -> tuple[list[Link], bool, int]:
        """Return some links that follow a verified one, verified.

        The table of who took part is compared with them.

        Returns:
            The links, whether nothing followed them, and how many rows say who took part.

        Raises:
            LedgerError: either is broken, or `after` is not in the chain any more.
        """
        position = after.position if after else 0
        with self._reading() as connection:
            known = rows.hash_at(connection, position) if after else GENESIS
            links, is_last = rows.read_piece(connection, position, most_bytes)
            places = rows.places_between(connection, links)
        if after is not None and known != after.hash:
            raise LedgerError(
                f"The ledger is broken at position {position}: what stands there is not "
                f"what was read before. Restore it from a copy."
            )
        verify(links, after)
        rows.check_places(links, places)
        return links, is_last, len(places)

    def places(self, client: Handle) -> list[Place]:
        """Return where a client took part, as far as it still counts, fast and not verified."""
        with self._reading() as connection:
            rewinds = rows.read_rewinds(connection)
            places = rows.places_of(connection, client)
        return [each for each in places if counts(rewinds, each.position, each.round_index)]

    def links_at(self, positions: Iterable[int]) -> list[Link]:
        """Return what stands at these positions, not verified."""
        with self._reading() as connection:
            found = (rows.links(connection, EVENTS.position == at) for at in positions)
            return list(chain.from_iterable(found))

    def without(self, kinds: Collection[str]) -> list[Link]:
        """Return what still counts of all other kinds, fast and not verified."""
        with self._reading() as connection:
            rewinds = rows.read_rewinds(connection)
            links = list(rows.links(connection, EVENTS.kind.not_in(list(kinds))))
        return [one for one in links if counts(rewinds, one.position, one.round_index)]

    def rewinds(self) -> list[tuple[int, int]]:
        """Return the position of each rewind, and the round that it rewinds to."""
        with self._reading() as connection:
            return rows.read_rewinds(connection)

    def replay(self) -> list[Record]:
        """Return everything that was recorded, in order, once it is verified."""
        return [one.record() for one in self.links()]

    def compare(self, round_index: int, records: Sequence[Record]) -> None:
        """Check that a replayed round is the one that counts; nothing is written.

        Raises:
            LedgerMismatch: it is not.
        """
        with self._reading() as connection:
            recorded = [one.record() for one in rows.read_round(connection, round_index)]
        difference = first_difference(recorded, records)
        if difference:
            raise LedgerMismatch(
                f"Round {round_index} must replay as {self.location} recorded it, but "
                f"{difference}. Resume with the configuration, the data and the "
                f"version of covey that began this run, or start a new run."
            )

    def last_round(self) -> int | None:
        """Return the index of the newest round that counts."""
        with self._reading() as connection:
            return rows.last_round(connection)

    def furthest_round(self) -> int | None:
        """Return the largest index ever recorded, of a superseded round or not."""
        with self._reading() as connection:
            return connection.scalar(select(func.max(EVENTS.round_index)))

    def head(self) -> str:
        """Return the newest hash, which commits to the whole history."""
        with self._reading() as connection:
            return rows.end(connection)[1]

    def is_being_written(self) -> bool:
        """Return whether some process holds the right to write."""
        with errors_explained(self._backend):
            return self._backend.is_locked()

    def overview(self) -> Overview:
        """Return how far the run is, without reading or verifying what came before."""
        with self._reading() as connection:
            last = rows.last_link(connection)
            return Overview(
                events=last.position if last else 0,
                head=last.hash if last else GENESIS,
                last_kind=last.kind if last else "",
                written_at=rows.newest_time(connection) or "",
                last_round=rows.last_round(connection),
                first_round=tuple(one.record() for one in rows.read_round(connection, 0)),
                ended=tuple(one.record() for one in rows.between(connection, ENDED)),
                clients=connection.scalar(select(func.count()).select_from(tables.clients)) or 0,
            )

    def end(self) -> tuple[int, str, str | None]:
        """Return the last position, its hash, and when it was written."""
        with self._reading() as connection:
            return *rows.end(connection), rows.newest_time(connection)

    def head_of(self, round_index: int) -> str | None:
        """Return the hash of the last event that still counts of one round."""
        with self._reading() as connection:
            links = rows.read_round(connection, round_index)
        return links[-1].hash if links else None

    def seconds_per_round(self) -> list[float]:
        """Return how long each entry took to follow the one before, in seconds."""
        stamps = map(datetime.fromisoformat, self.times().values())
        return [(b - a).total_seconds() for a, b in pairwise(stamps)]

    def times(self) -> dict[int, str]:
        """Return when each entry was written, by the position of its last event."""
        with self._reading() as connection:
            query = select(tables.clock).order_by(tables.clock.c.position)
            return dict(map(tuple, connection.execute(query)))

    def hashes(self) -> list[str]:
        """Return the hash of every event, in order, once the whole is verified."""
        return [one.hash for one in self.links()]

    def verify(self) -> None:
        """Check the whole chain.

        Raises:
            LedgerError: it is broken; the message names the first bad position.
        """
        self.links()

    def check(self) -> None:
        """Check what the database itself knows of its file.

        Raises:
            LedgerError: a page or an index is damaged.
        """
        with self._reading() as connection:
            self._backend.check(connection)

    def check_participation(self) -> None:
        """Compare the table of who took part with all events.

        Raises:
            LedgerError: it says something else.
        """
        count, last, is_last = 0, None, False
        while not is_last:
            links, is_last, places = self.piece(last)
            count, last = count + places, links[-1] if links else last
        with self._reading() as connection:
            every = connection.scalar(select(func.count()).select_from(tables.participation))
            if (every or 0) > count:
                raise rows.not_the_events("of rounds that were not played")

    def rebuild_participation(self) -> None:
        """Make the table of who took part anew, of all events."""
        with self._writing_now() as connection:
            connection.execute(delete(tables.participation))
            records = ((one.position, one.record()) for one in rows.links(connection))
            rows.add_places(connection, records)

    def enrol(
        self,
        handles: Mapping[Handle, ClientName],
        keys: Mapping[ClientName, str] | None = None,
        organisations: Mapping[Handle, str] | None = None,
    ) -> None:
        """Record each handle's client; existing entries stay as they are.

        Args:
            handles: the name behind each.
            keys: the fingerprint of the key that a name is bound to from now on.
            organisations: whose client each one is from now on, as far as it is attested.

        Raises:
            LedgerError: a handle or a name is already bound to another one, or the
                client was erased.
        """
        keys_of = {h: keys[name] for h, name in handles.items() if keys and name in keys}
        columns = tables.clients.c
        with self._writing_now() as connection:
            changed = [
                clients_and_requests.bind_names(connection, handles, self.location),
                clients_and_requests.bind(connection, columns.key, keys_of),
                clients_and_requests.bind(connection, columns.organisation, organisations or {}),
            ]
            if any(changed):
                seal_tables(connection, [tables.clients])

    def names(self) -> dict[Handle, ClientName]:
        """Return the name of each handle's client, where it is still known."""
        with self._reading() as connection:
            return clients_and_requests.bound(connection, tables.clients.c.name)

    def name_of(self, handle: Handle) -> ClientName | None:
        """Return the name of one handle's client, where it is still known."""
        query = select(tables.clients.c.name).where(tables.clients.c.handle == handle)
        with self._reading() as connection:
            return connection.scalar(query)

    def keys(self) -> dict[ClientName, str]:
        """Return the fingerprint of the key that each client's name is bound to."""
        with self._reading() as connection:
            names = clients_and_requests.bound(connection, tables.clients.c.name)
            keys = clients_and_requests.bound(connection, tables.clients.c.key)
        return {names[handle]: key for handle, key in keys.items()}

    def organisations(self) -> dict[Handle, str]:
        """Return whose client each one is, where that is attested and not erased."""
        with self._reading() as connection:
            return clients_and_requests.bound(connection, tables.clients.c.organisation)

    def ask_all(
        self, new_requests: Sequence[NewRequest], records: Sequence[Record] = ()
    ) -> list[Request]:
        """Register several requests to leave, all of them or none.

        Args:
            new_requests: what is asked.
            records: that it is, between two rounds, so that nobody changes it unseen.

        Raises:
            LedgerError: there is no such answer or basis, or it cannot be written.
        """
        with self._writing_now() as connection:
            asked_at = self._clock()
            asked = [clients_and_requests.ask(connection, each, asked_at) for each in new_requests]
            seal_tables(connection, [tables.requests])
            if records:
                rows.add(connection, records, asked_at)
            return asked

    def requests(self) -> list[Request]:
        """Return every request to leave, in order of asking."""
        with self._reading() as connection:
            return clients_and_requests.read_requests(connection)

    def serve(self, served: Sequence[ServedRequest], records: Sequence[Record]) -> str:
        """Record answers and erase the requesters' names, in one transaction.

        Scrub the ledger next: the names' last traces go with it.

        Args:
            served: pending requests, and what is kept of them.
            records: what happened, between two rounds.

        Returns:
            The new head.

        Raises:
            LedgerError: a request is not pending, nobody is behind its handle, or it
                cannot be written.
        """
        _check_entry(records)
        with self._writing_now() as connection:
            written_at = self._clock()
            for each in served:
                clients_and_requests.serve(connection, each, written_at)
            seal_tables(connection)
            return rows.add(connection, records, written_at)

    def answered(self, request_id: str, answer: str) -> None:
        """Close a request that was served; what its answer needed is dropped.

        Raises:
            LedgerError: it is not being served.
        """
        self._close_request(request_id, "serving", {"state": "done", "answer": answer})

    def refused(self, request_id: str, reason: str) -> None:
        """Close a request that was refused; no name is erased.

        Raises:
            LedgerError: it is not pending.
        """
        self._close_request(request_id, "pending", {"state": "refused", "answer": reason})

    def stopped(self) -> dict[ClientName, Handle]:
        """Return the clients whose data no round uses any more, and whose names stay."""
        names = self.names()
        answered = (
            each.handle for each in self.requests() if each.state in clients_and_requests.NAMELESS
        )
        return {names[handle]: handle for handle in answered if handle in names}

    def tombstones(self) -> frozenset[str]:
        """Return the tombstones of clients that left."""
        with self._reading() as connection:
            return clients_and_requests.read_tombstones(connection)

    def scrub(self) -> None:
        """Overwrite what is left of erased names; may be done again at any time.

        Afterwards an SQLite ledger's files hold them nowhere. On PostgreSQL its
        write-ahead log, backups and replicas are not covered, nor the server's own log.
        """
        self._check_writer()
        with errors_explained(self._backend):
            self._backend.scrub()

    def close(self) -> None:
        """Let another process write."""
        if self._lock:
            self._lock.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    @contextmanager
    def _writing(cls, backend: Backend, clock: Callable[[], str]) -> Iterator["Ledger"]:
        """Lend a ledger for writing, closed again if the block fails."""
        with errors_explained(backend):
            engine, lock = backend.writer(), backend.lock()
        ledger = cls(str(backend), backend, engine, lock, clock)
        try:
            yield ledger
        except BaseException:
            ledger.close()
            raise

    def _check_writer(self) -> None:
        if self._lock is None:
            raise LedgerError(
                f"{self.location} was opened to be read. Use Ledger.open to write it."
            )
        self._lock.check()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with errors_explained(self._backend), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _writing_now(self) -> Iterator[Connection]:
        self._check_writer()
        with self._reading() as connection:
            yield connection

    def _close_request(
        self, request_id: str, before: clients_and_requests.State, changes: Mapping[str, str]
    ) -> None:
        settled = {**changes, "answered_at": self._clock(), "note": None}
        with self._writing_now() as connection:
            clients_and_requests.advance(connection, request_id, before, settled)
            seal_tables(connection, [tables.requests])


def _existing(location: str | Path) -> Backend:
    backend = backend_of(location)
    with errors_explained(backend):
        if backend.exists():
            return backend
    raise LedgerError(
        f"A ledger was expected at {backend}, but no such file is there. "
        f"Check the path; a run makes its ledger when it starts."
    )


def _check_entry(records: Sequence[Record], round_index: int | None = None) -> None:
    """Refuse what cannot be one entry: of this round or, None, between two of them."""
    where = "between two rounds" if round_index is None else f"of round {round_index}"
    strays = [one.round_index for one in records if one.round_index != round_index]
    if strays or not records:
        other = "no round" if None in strays else f"round {strays[0]}" if strays else ""
        found = f"one of {other}" if other else "none"
        raise LedgerError(
            f"What is recorded {where} must be at least one event, and all of them from there, "
            f"but there is {found}. Record what happened, each round by itself."
        )
    for one in records:
        rewound_to(one)  # refuses a rewind that no reader could follow
