"""Tables beside the chain: clients' names, requests to leave, tombstones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Column, Connection, bindparam, delete, insert, select, update

from covey.base.errors import LedgerError
from covey.base.names import ANSWERS, BASES, ClientName, Handle, unknown
from covey.ledger import rows
from covey.ledger.backends import Database
from covey.ledger.chain import Link, Record, canonical_body
from covey.ledger.requests import (
    NAMELESS,
    ClientRoster,
    LeaveRequest,
    Mark,
    State,
    damaged_note,
    mistimed,
)
from covey.ledger.tables import clients, requests, tombstones

AT_ONCE = 10_000
"""How many clients are written at a time."""

_mark_from = TypeAdapter(Mark).validate_json


@dataclass(frozen=True, slots=True, eq=False)
class ClientTables:
    """The clients of a ledger, and those who leave.

    Attributes:
        location: the ledger's place, as messages name it: without a password.
    """

    location: str
    _database: Database = field(repr=False)
    _clock: Callable[[], str] = field(default=str, repr=False)

    def enrol(
        self, handles: Mapping[Handle, ClientName], keys: Mapping[ClientName, str] | None = None
    ) -> None:
        """Record each handle's client; existing entries stay as they are.

        Args:
            handles: the name behind each.
            keys: the fingerprint of the key that a name is bound to from now on.

        Raises:
            LedgerError: a handle or a name is already bound to another one, or the
                client was erased.
        """
        keys_of = {h: keys[name] for h, name in handles.items() if keys and name in keys}
        with self._database.writing() as connection:
            changed = [self._bind_names(connection, handles), _bind_keys(connection, keys_of)]
            if any(changed):
                rows.seal_tables(connection, [clients])

    def _bind_names(self, connection: Connection, handles: Mapping[Handle, ClientName]) -> bool:
        """Record each handle's client, and say if any is new; existing entries stay."""
        known = _bound(connection, clients.c.name)
        new = [(one, name) for one, name in handles.items() if one not in known]
        named = len({*known.values(), *(name for _, name in new)})
        rebound = any(known.get(one, name) != name for one, name in handles.items())
        if rebound or named < len(known) + len(new):
            raise LedgerError(
                f"A client must keep its one handle in {self.location}, found a handle or a client "
                f"bound twice: enrol clients under the handles that this run first gave them."
            )
        erased = select(requests.c.handle).where(requests.c.state.in_(NAMELESS))
        if handles.keys() & set(connection.scalars(erased)):
            raise LedgerError(
                f"Who left {self.location} must stay out, found a client whose name was erased: "
                f"leave out every client that has a tombstone."
            )
        for start in range(0, len(new), AT_ONCE):
            rows = [{"handle": h, "name": name} for h, name in new[start : start + AT_ONCE]]
            connection.execute(insert(clients), rows)
        return bool(new)

    def names(self) -> dict[Handle, ClientName]:
        """Return the name of each handle's client, where it is still known."""
        with self._database.reading() as connection:
            return _bound(connection, clients.c.name)

    def keys(self) -> dict[ClientName, str]:
        """Return the fingerprint of the key that each client's name is bound to."""
        keyed = select(clients.c.name, clients.c.key).where(clients.c.key.is_not(None))
        with self._database.reading() as connection:
            return dict(map(tuple, connection.execute(keyed.order_by(clients.c.handle))))

    def roster(self) -> ClientRoster:
        """Return who is in the run, who asked to leave it, and by what who left is known."""
        with self._database.reading() as connection:
            return ClientRoster(
                names=_bound(connection, clients.c.name),
                requests=tuple(_read_requests(connection)),
                tombstones=frozenset(connection.scalars(select(tombstones.c.mark))),
            )

    def requests(self) -> list[LeaveRequest]:
        """Return every request to leave, in order of asking."""
        with self._database.reading() as connection:
            return _read_requests(connection)

    def add_requests(
        self, new: Sequence[LeaveRequest], records: Sequence[Record] = ()
    ) -> tuple[list[LeaveRequest], list[Link]]:
        """Register several requests to leave, all of them or none.

        One that was drawn before is returned as it is.

        Args:
            new: what clients want.
            records: that it is, between two rounds, so that no change of it stays unseen.

        Raises:
            LedgerError: there is no such answer or basis, or it cannot be written.
        """
        with self._database.writing() as connection:
            requested_at = self._clock()
            recorded = [_insert_request(connection, request, requested_at) for request in new]
            rows.seal_tables(connection, [requests])
            return recorded, rows.add(connection, None, records, requested_at) if records else []

    def serve(
        self, served: Sequence[LeaveRequest], marks: Mapping[Handle, str], records: Sequence[Record]
    ) -> list[Link]:
        """Record answers and erase the requesters' names, in one transaction.

        Scrub the ledger next: the names' last traces go with it.

        Args:
            served: pending requests, with what is kept of them until they are answered;
                what was sealed of the same client before is destroyed.
            marks: by which to know those again whose names are erased now.
            records: what happened, between two rounds.

        Returns:
            The links of what happened.

        Raises:
            LedgerError: a request is not pending, no client is behind its handle, or it
                cannot be written.
        """
        with self._database.writing() as connection:
            written_at = self._clock()
            for request in served:
                _serve(connection, request, written_at)
                if request.handle in marks:
                    _erase(connection, request.handle, marks[request.handle])
            rows.seal_tables(connection)
            return rows.add(connection, None, records, written_at)

    def answered(self, request_id: str, answer: str) -> None:
        """Close a request that was served; what its answer needed is dropped.

        Raises:
            LedgerError: it is not being served.
        """
        self._close_request(request_id, "serving", "done", answer)

    def refused(self, request_id: str, reason: str) -> None:
        """Close a request that was refused; no name is erased.

        Raises:
            LedgerError: it is not pending.
        """
        self._close_request(request_id, "pending", "refused", reason)

    def _close_request(self, request_id: str, before: State, after: State, answer: str) -> None:
        closed = {"state": after, "answer": answer, "answered_at": self._clock(), "note": None}
        with self._database.writing() as connection:
            _advance(connection, request_id, before, closed)
            rows.seal_tables(connection, [requests])


def _bound(connection: Connection, column: Column[Any]) -> dict[Handle, str]:
    """Return what each client is bound to: its name or key."""
    query = select(clients.c.handle, column).where(column.is_not(None)).order_by(clients.c.handle)
    return dict(map(tuple, connection.execute(query)))


def _bind_keys(connection: Connection, to: Mapping[Handle, str]) -> bool:
    """Bind clients to keys, anew if they were; say if any is changed."""
    known = _bound(connection, clients.c.key)
    changed = [{"one": one, "to": name} for one, name in to.items() if known.get(one) != name]
    if changed:
        row = update(clients).where(clients.c.handle == bindparam("one"))
        connection.execute(row.values(key=bindparam("to")), changed)
    return bool(changed)


def _insert_request(connection: Connection, new: LeaveRequest, requested_at: str) -> LeaveRequest:
    for what, value, known in (
        ("answer", new.wanted, ("auto", *ANSWERS)),
        ("basis", new.basis, BASES),
    ):
        if value not in known:
            raise LedgerError(unknown(f"The {what} of a request", value, known))
    earlier = _read_requests(connection)
    for request in earlier:
        if new.after_round is not None and request.after_round == new.after_round:
            return request
    recorded = replace(new, requested_at=requested_at)
    content = {name: getattr(recorded, name) for name in {*requests.c.keys()} - {"number", "note"}}
    note = new.mark and canonical_body(asdict(new.mark))
    connection.execute(insert(requests).values(number=len(earlier), note=note, **content))
    return recorded


def _read_requests(connection: Connection) -> list[LeaveRequest]:
    rows_read = connection.execute(select(requests).order_by(requests.c.number))
    return [_request(**row._mapping) for row in rows_read]


def _advance(
    connection: Connection, request_id: str, before: State, changes: Mapping[str, Any]
) -> None:
    """Change a request that is in the state `before`, or refuse to."""
    known = requests.c.id == request_id
    state = connection.scalar(select(requests.c.state).where(known))
    if state != before:
        raise mistimed(request_id, before, state or "none")
    connection.execute(update(requests).where(known).values(**changes))


def _serve(connection: Connection, request: LeaveRequest, served_at: str) -> None:
    same = requests.c.handle == request.handle
    connection.execute(update(requests).where(same).values(sealed=None))
    unchanged = {"note": request.served, "sealed": request.sealed}
    changes = {"state": "serving", "served_at": served_at, **unchanged}
    _advance(connection, request.id, "pending", changes)


def _erase(connection: Connection, handle: Handle, mark: str) -> None:
    gone = connection.execute(delete(clients).where(clients.c.handle == handle))
    if gone.rowcount != 1:
        raise LedgerError(
            f"The handle {handle} must be a client's, found none: check it; it may be gone already."
        )
    if mark not in set(connection.scalars(select(tombstones.c.mark))):
        connection.execute(insert(tombstones).values(mark=mark))


def _request(note: str | None, **cells: Any) -> LeaveRequest:  # noqa: ANN401 - as the columns are
    waits = cells["state"] == "pending"
    try:
        mark = _mark_from(note) if note and waits else None
    except ValidationError as error:
        raise damaged_note(cells["id"], error) from error
    if not str(cells["id"]).isalnum():
        raise LedgerError(
            f"A request's name must be letters and digits, found {cells['id']!r}: restore a copy."
        )
    del cells["number"]
    return LeaveRequest(**cells, mark=mark, served=None if waits else note)
