"""The durable ledger: one transaction per round, one writer, any number of readers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from sqlalchemy import Connection, Engine, insert

from covey.errors import LedgerError, LedgerMismatch
from covey.ledger import tables
from covey.ledger.chain import GENESIS, Link, Record, seal, verify
from covey.ledger.difference import first_difference
from covey.ledger.sqlite import database_file, explained, reader, take_lock, writer
from covey.types import ClientName, Handle

__all__ = ["Ledger"]


@dataclass(frozen=True, slots=True)
class _Pen:
    """What only a writer has."""

    lock: TextIO
    clock: Callable[[], str]


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """The record of one run; close it, or use it in a `with` block.

    >>> with Ledger.create("runs/first/ledger.sqlite", clock=utc_now) as ledger:
    ...     head = ledger.append(0, [Record(0, "cohort_sampled", {"clients": 3})])
    """

    path: Path
    _engine: Engine = field(repr=False)
    _pen: _Pen | None = field(repr=False)

    @classmethod
    def create(cls, where: str | Path, clock: Callable[[], str]) -> "Ledger":
        """Begin a ledger where there is none; `clock` says when a round is written.

        Raises:
            LedgerError: there is a ledger already, or it cannot be written there.
            LedgerLocked: another process is writing it.
        """
        with cls._writing(database_file(where), clock) as ledger:
            with ledger._transaction() as connection:
                tables.lay_out(connection, ledger.path)
            return ledger

    @classmethod
    def open(cls, where: str | Path, clock: Callable[[], str]) -> "Ledger":
        """Open a ledger to carry it on, once its whole chain is verified.

        Raises:
            LedgerError: there is no ledger, or it is broken or cannot be written.
            LedgerLocked: another process is writing it.
        """
        path = _existing(where)
        with cls._writing(path, clock) as ledger:
            with ledger._transaction() as connection:
                tables.check_version(connection, path)
                tables.check_writable(connection)
                verify(tables.read_links(connection))
            return ledger

    @classmethod
    def read(cls, where: str | Path) -> "Ledger":
        """Open a ledger to look at it, even while another process writes it.

        Raises:
            LedgerError: there is no ledger, or it cannot be read.
        """
        path = _existing(where)
        ledger = cls(path, reader(path), None)
        with ledger._transaction() as connection:
            tables.check_version(connection, path)
        return ledger

    def append(self, round_index: int, records: Sequence[Record]) -> str:
        """Record a round, all of it or nothing, and return the new head.

        Raises:
            LedgerError: the round is recorded already, comes before the last one,
                is empty, or cannot be written.
        """
        _check_round(round_index, records)
        stamp = {"round_index": round_index, "written_at": self._writer().clock()}
        with self._transaction() as connection:
            last = tables.last_link(connection)
            if last and round_index <= last.round_index:
                raise LedgerError(
                    f"A round is recorded once and in order, but round {round_index} "
                    f"comes after round {last.round_index} in {self.path}. Compare "
                    f"a replayed round instead of appending it."
                )
            links = seal(records, after=last)
            connection.execute(insert(tables.events), [asdict(one) for one in links])
            connection.execute(insert(tables.clock), stamp)
        return links[-1].hash

    def replay(self) -> list[Record]:
        """Return everything that was recorded, in order, once it is verified."""
        return [one.record() for one in self._verified()]

    def round(self, round_index: int) -> list[Record]:
        """Return what was recorded of one round, once the whole is verified."""
        return [
            one.record() for one in self._verified() if one.round_index == round_index
        ]

    def compare(self, round_index: int, records: Sequence[Record]) -> None:
        """Check that a replayed round is the recorded one; nothing is written.

        Raises:
            LedgerMismatch: it is not.
        """
        with self._transaction() as connection:
            recorded = [
                one.record() for one in tables.read_round(connection, round_index)
            ]
        difference = first_difference(recorded, records)
        if difference:
            raise LedgerMismatch(
                f"Round {round_index} must replay as {self.path} recorded it, but "
                f"{difference}. Resume with the configuration, the data and the "
                f"version of covey that began this run, or start a new run."
            )

    def last_round(self) -> int | None:
        """Return the index of the newest recorded round."""
        with self._transaction() as connection:
            last = tables.last_link(connection)
        return last.round_index if last else None

    def head(self) -> str:
        """Return the newest hash, which stands for the whole history."""
        with self._transaction() as connection:
            last = tables.last_link(connection)
        return last.hash if last else GENESIS

    def verify(self) -> None:
        """Check the whole chain.

        Raises:
            LedgerError: it is broken; the message names the first bad position.
        """
        self._verified()

    def enrol(self, handles: Mapping[Handle, ClientName]) -> None:
        """Keep who is behind each handle; what is known already is left alone.

        Raises:
            LedgerError: a handle or a name is already bound to another one.
        """
        self._writer()
        with self._transaction() as connection:
            known = tables.names(connection)
            bound = known | dict(handles)
            if bound != {**handles, **known} or len(set(bound.values())) < len(bound):
                raise LedgerError(
                    f"A client has one handle in {self.path}, for good, but an "
                    f"enrolment binds a handle or a client twice. Enrol clients under "
                    f"the handles that this run first gave them."
                )
            rows = [
                {"handle": one, "name": name}
                for one, name in handles.items()
                if one not in known
            ]
            if rows:
                connection.execute(insert(tables.clients), rows)

    def names(self) -> dict[Handle, ClientName]:
        """Return who is behind each handle, as far as that is still known."""
        with self._transaction() as connection:
            return tables.names(connection)

    def close(self) -> None:
        """Let another process write."""
        if self._pen:
            self._pen.lock.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    @contextmanager
    def _writing(cls, path: Path, clock: Callable[[], str]) -> Iterator["Ledger"]:
        """Lend a ledger for writing, closed again if the block fails."""
        with explained(path):
            lock = take_lock(path)
        ledger = cls(path, writer(path), _Pen(lock, clock))
        try:
            yield ledger
        except BaseException:
            ledger.close()
            raise

    def _writer(self) -> _Pen:
        if self._pen is None:
            raise LedgerError(
                f"{self.path} was opened to be read. Use Ledger.open to write it."
            )
        return self._pen

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with explained(self.path), self._engine.begin() as connection:
            yield connection

    def _verified(self) -> list[Link]:
        with self._transaction() as connection:
            links = tables.read_links(connection)
        verify(links)
        return links


def _existing(where: str | Path) -> Path:
    path = database_file(where)
    with explained(path):
        if path.is_file():
            return path
    raise LedgerError(
        f"A ledger was expected at {path}, but no such file is there. "
        f"Check the path; a run makes its ledger when it starts."
    )


def _check_round(round_index: int, records: Sequence[Record]) -> None:
    if not records:
        raise LedgerError(
            f"A round must leave at least one event, but round {round_index} has "
            f"none, and could not be told from a round that was never played. "
            f"Record what happened, even if nothing moved."
        )
    strays = {one.round_index for one in records} - {round_index}
    if strays:
        raise LedgerError(
            f"Events must be appended with their own round, but round {round_index} "
            f"came with events of round {min(strays)}. Append them apart."
        )
