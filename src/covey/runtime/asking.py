"""Which client asks to leave: by name, or by name and salt after its name was erased."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.build import BuiltRun
from covey.errors import LedgerError, RunError
from covey.events import LeaveRequested, kind_and_body
from covey.ledger import NewRequest, Record, Request
from covey.runtime.session import Session
from covey.types import ClientName, Handle
from covey.unlearning import WantedAnswer, unsealed
from covey.unlearning.served import Mark

__all__ = [
    "Returning",
    "as_recorded",
    "find_clients",
    "mark_of",
    "new_request",
    "put_down",
    "recorded_requests",
    "wanted_answer_of",
]


@dataclass(frozen=True, slots=True)
class Returning:
    """A client that has left, and comes back for a stronger answer.

    Attributes:
        salt: hex; the one that it was given with its last answer.
    """

    client: ClientName
    salt: str = field(repr=False)


def find_clients(
    session: Session, run: BuiltRun, clients: Sequence[ClientName | Returning]
) -> tuple[Session, dict[ClientName, Handle]]:
    """Return the clients' handles, each once, and the session in which they are found.

    Args:
        session: the run without those who left.
        run: the run with the data that are there, of those who left as well.
        clients: their names, with the salt of those who left.

    Raises:
        RunError: a client is not known to the run.
    """
    handles = {client.name: client.handle for client in session.run.population.clients}
    known: dict[ClientName, Handle] = {}
    for each in clients:
        name = each.client if isinstance(each, Returning) else each
        handle = (
            _unsealed_handle(session, each)
            if isinstance(each, Returning)
            else handles.get(name)
        )
        if handle is None:
            raise RunError(
                f"Clients are asked for by the names that {session.folder.path} knows, but "
                f"it knows no client {name!r}: it never did, or not any more. Check the "
                f"spelling; who left comes back with --salt and the salt of the last "
                f"answer, unless that was a retraining."
            )
        known[name] = handle
    back = {each.client for each in clients if isinstance(each, Returning)}
    returned = {
        known[client.name]: replace(client, handle=known[client.name])
        for client in run.population.clients
        if client.name in back
    }
    return replace(session, returned=returned), known


def new_request(name: ClientName, wanted_answer: WantedAnswer) -> NewRequest:
    """Return what to put in the ledger's queue.

    Its marks are made now: the receipt tells them, and nobody but the requester knows
    the name of who left, so that a request that a crash cuts off is served without it.
    """
    mark = Mark.fresh(wanted_answer.handle, name)
    return NewRequest(
        wanted_answer.handle, wanted_answer.wanted, basis=wanted_answer.basis, mark=mark
    )


def put_down(session: Session, new: Sequence[NewRequest]) -> list[Request]:
    """Put requests in the ledger's queue, and in its chain what they ask for.

    Before anything is recorded there is no chain: then they enter it with their answers.
    """
    asked = [
        LeaveRequested(
            each.id,
            each.handle,
            each.wanted,
            each.basis,
            each.mark.subject if each.mark else "",
        )
        for each in new
    ]
    records = [Record(None, *kind_and_body(each)) for each in asked]
    return session.ledger.ask_all(new, records if session.record().hashes else ())


def recorded_requests(session: Session) -> dict[str, LeaveRequested]:
    """Return what the chain holds of requests, by their identifiers."""
    events = (each for _, each in session.record().events)
    return {e.request: e for e in events if isinstance(e, LeaveRequested)}


def as_recorded(
    request: Request, known: Mapping[str, LeaveRequested]
) -> LeaveRequested | None:
    """Return what is still to be recorded of a request; None: it stands in the chain.

    Raises:
        LedgerError: the chain has it otherwise.
    """
    subject = request.mark.subject if request.mark else ""
    asked = LeaveRequested(
        request.id, request.handle, request.wanted, request.basis, subject
    )
    found = known.get(request.id)
    if found not in (None, asked):
        raise LedgerError(
            f"A request is answered as it was asked, but of {request.id} the table of "
            f"requests says {asked}, and the chain {found}: the table was changed. Restore "
            f"the ledger from a copy."
        )
    return asked if found is None else None


def mark_of(request: Request, name: ClientName | None) -> Mark:
    """Return the requester's marks; new ones, unless it has left already."""
    if request.mark is not None:
        return request.mark
    if name is None:
        raise RunError(
            f"Who is served must be known by name, or have left marks with its request, "
            f"but nobody is known behind the handle {request.handle}. Ask again."
        )
    return Mark.fresh(request.handle, name)


def wanted_answer_of(request: Request) -> WantedAnswer:
    """Return what a request asks for."""
    return WantedAnswer(request.handle, request.wanted, request.basis)


def _unsealed_handle(session: Session, returning: Returning) -> Handle | None:
    try:
        salt = bytes.fromhex(returning.salt)
    except ValueError as error:
        raise RunError(
            f"A salt is hexadecimal digits, as the answer printed them, but: {error}. "
            f"Copy it again."
        ) from error
    records = [each.sealed for each in session.ledger.requests() if each.sealed]
    opened = (unsealed(record, returning.client, salt) for record in records)
    return next((handle for handle in opened if handle is not None), None)
