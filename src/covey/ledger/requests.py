"""Tables beside the chain: clients' names, requests to leave, tombstones."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Column, Connection, bindparam, delete, func, insert, select, update

from covey.base.errors import LedgerError
from covey.base.names import BASES, Basis, ClientName, Handle
from covey.ledger.chain import canonical_body
from covey.ledger.tables import clients, requests, tombstones
from covey.unlearning.proof import Mark, Served

Wanted = Literal["auto", "deny", "subtract", "roll_back", "retrain", "calibrate", "stop"]
"""The answer that a client asks for; "auto": the cheapest honest one."""

State = Literal["pending", "serving", "done", "refused"]
"""Where a request is; from "serving" on its client's name is gone."""

AT_ONCE = 10_000
"""How many clients are written at a time."""

NAMELESS: tuple[State, ...] = ("serving", "done")


@dataclass(frozen=True, slots=True)
class _Marked:
    mark: Mark


NOTE: TypeAdapter[_Marked | Served] = TypeAdapter(_Marked | Served)
"""What the column `note` holds, in JSON."""


@dataclass(frozen=True, slots=True)
class Request:
    """A client's wish to leave, and what came of it.

    Attributes:
        after_round: the round after which a simulation drew it; None: somebody asked.
        mark: of a client that comes back, until the request is served, then None.
        served: what is known of a request that is being served; None before and after.
        sealed: what finds the client again, for who has the requester's name and salt;
            None: nothing is kept.
    """

    id: str
    handle: Handle
    wanted: Wanted
    after_round: int | None
    state: State
    asked_at: str
    served_at: str | None = None
    answered_at: str | None = None
    answer: str | None = None
    mark: Mark | None = None
    served: Served | None = None
    basis: Basis = "none"
    sealed: str | None = None

    def being_served(self) -> Served:
        """Return what is known of it while it is served.

        Raises:
            LedgerError: it is not.
        """
        if self.served is None:
            raise LedgerError(
                f"The request {self.id} must be served for this step, but it is "
                f"{self.state}. Look at the requests again and take each step once."
            )
        return self.served


@dataclass(frozen=True, slots=True)
class NewRequest:
    """What is put in the queue.

    Attributes:
        wanted: the answer that is asked for, or "auto".
        after_round: the round after which a simulation drew it; None: somebody asked.
        mark: of a client that comes back: nobody else knows its name any more.
        id: names it.
    """

    handle: Handle
    wanted: str
    after_round: int | None = None
    basis: str = "none"
    mark: Mark | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """What is done about one request when it is served.

    Attributes:
        request: a pending one.
        tombstone: the mark by which to know the client again, whose name is erased;
            None: that was done with an earlier answer.
        served: what has to outlive a crash until the request is answered.
        sealed: what finds the client again; earlier ones of the same client are
            destroyed.
    """

    request: Request
    tombstone: str | None
    served: Served
    sealed: str | None = None


def bound(connection: Connection, column: Column[Any]) -> dict[Handle, str]:
    """Return what each client is bound to: its name, key or organisation."""
    query = select(clients.c.handle, column).where(column.is_not(None)).order_by(clients.c.handle)
    return dict(map(tuple, connection.execute(query).all()))


def bind(connection: Connection, column: Column[Any], found: Mapping[Handle, str]) -> bool:
    """Bind clients to keys or organisations, anew if they were; say if any is changed."""
    known = bound(connection, column)
    changed = [{"one": one, "to": to} for one, to in found.items() if known.get(one) != to]
    if changed:
        row = update(clients).where(clients.c.handle == bindparam("one"))
        connection.execute(row.values({column: bindparam("to")}), changed)
    return bool(changed)


def bind_names(connection: Connection, handles: Mapping[Handle, ClientName], location: str) -> bool:
    """Record each handle's client, and say if any is new; existing entries stay.

    Raises:
        LedgerError: a handle or a name is bound to another one, or was erased.
    """
    known = bound(connection, clients.c.name)
    new = {one: name for one, name in handles.items() if one not in known}
    named = len({*known.values(), *new.values()})
    rebound = any(known.get(one, name) != name for one, name in handles.items())
    if rebound or named < len(known) + len(new):
        raise LedgerError(
            f"A client has one handle in {location}, for good, but an enrolment binds a "
            f"handle or a client twice. Enrol clients under the handles that this run "
            f"first gave them."
        )
    erased = select(requests.c.handle).where(requests.c.state.in_(NAMELESS))
    if handles.keys() & set(connection.scalars(erased)):
        raise LedgerError(
            f"Who left {location} stays out, but an enrolment brings a client back whose "
            f"name was erased. Leave out every client that has a tombstone."
        )
    rows = ({"handle": one, "name": name} for one, name in new.items())
    while some := list(islice(rows, AT_ONCE)):
        connection.execute(insert(clients), some)
    return bool(new)


def ask(connection: Connection, new: NewRequest, asked_at: str) -> Request:
    """Put a request in the queue; one that was drawn before is returned as it is.

    Raises:
        LedgerError: there is no such answer to want, or no such basis.
    """
    _check_one_of("want", new.wanted, get_args(Wanted))
    _check_one_of("rest its request on", new.basis, BASES)
    for known in read_requests(connection):
        if new.after_round is not None and known.after_round == new.after_round:
            return known
    number = connection.scalar(select(func.count()).select_from(requests))
    connection.execute(
        insert(requests).values(
            number=number,
            id=new.id,
            handle=new.handle,
            wanted=new.wanted,
            after_round=new.after_round,
            state="pending",
            asked_at=asked_at,
            note=new.mark and canonical_body(asdict(_Marked(new.mark))),
            basis=new.basis,
        )
    )
    return read_requests(connection)[-1]


def read_requests(connection: Connection) -> list[Request]:
    """Return every request, in order of asking."""
    rows = connection.execute(select(requests).order_by(requests.c.number))
    return [_request(row) for row in rows]


def advance(
    connection: Connection, request_id: str, before: State, changes: Mapping[str, Any]
) -> Request:
    """Change a request that is in the state `before`, and return it as it was.

    Raises:
        LedgerError: there is no such request, or it is in another state.
    """
    row = connection.execute(select(requests).where(requests.c.id == request_id)).first()
    if row is None or row.state != before:
        found = "there is none" if row is None else f"it is {row.state}"
        raise LedgerError(
            f"The request {request_id} must be {before} for this step, but {found}. "
            f"Look at the requests again and take each step once."
        )
    known = requests.c.id == request_id
    connection.execute(update(requests).where(known).values(**changes))
    return _request(row)


def serve(connection: Connection, served: ServedRequest, served_at: str) -> None:
    """Mark a request as being served, and erase the requester's name.

    Raises:
        LedgerError: it is not pending, or nobody is behind its handle.
    """
    changes = {
        "state": "serving",
        "served_at": served_at,
        "note": canonical_body(asdict(served.served)),
        "sealed": served.sealed,
    }
    handle = served.request.handle
    own = requests.c.handle == handle
    connection.execute(update(requests).where(own).values(sealed=None))
    advance(connection, served.request.id, "pending", changes)
    if served.tombstone is None:
        return
    gone = connection.execute(delete(clients).where(clients.c.handle == handle))
    if gone.rowcount != 1:
        raise LedgerError(
            f"A client is erased once, but nobody is behind the handle {handle}. "
            f"Check the handle; it may be erased already."
        )
    if served.tombstone not in read_tombstones(connection):
        connection.execute(insert(tombstones).values(mark=served.tombstone))


def read_tombstones(connection: Connection) -> frozenset[str]:
    """Return the tombstones of clients that left."""
    return frozenset(connection.scalars(select(tombstones.c.mark)))


def _request(row: Iterable[Any]) -> Request:
    _, *cells, note, basis, sealed = row
    try:
        kept = None if note is None else NOTE.validate_json(note)
    except ValidationError as error:
        raise LedgerError(
            f"A request keeps what its answer needs, but what stands with {cells[0]} is "
            f"not that: {error.errors()[0]['msg']}. Restore the ledger from a copy."
        ) from error
    return Request(
        *cells,
        mark=kept.mark if isinstance(kept, _Marked) else None,
        served=kept if isinstance(kept, Served) else None,
        basis=basis,
        sealed=sealed,
    )


def _check_one_of(what: str, found: str, known: Sequence[str]) -> None:
    if found not in known:
        raise LedgerError(
            f"A client can {what} {', '.join(known)}, but it is {found!r}. Ask with one of those."
        )
