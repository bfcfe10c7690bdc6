"""Requests to leave: who asks, what is put in the queue and in the chain, and what it is given."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from covey.base.errors import LedgerError, RunError
from covey.base.events import LeaveRequested
from covey.base.names import Basis, ClientName, Handle
from covey.ledger.requests import NewRequest, Request
from covey.ledger.store import Ledger
from covey.runtime.anchors import Receipt, key_of, sign_receipt
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import records_of
from covey.runtime.reading import unknown_client
from covey.runtime.secrets import Handover, keep_handover
from covey.runtime.session import Session
from covey.unlearning.plan import WantedAnswer
from covey.unlearning.proof import Mark, unsealed

OnReceipt = Callable[[ClientName, Receipt], None]
"""Called with a client's name and its receipt, before it is answered."""


@dataclass(frozen=True, slots=True)
class Returning:
    """A client that has left, and comes back for a stronger answer.

    Attributes:
        salt: hex; the one that it was given with its last answer.
    """

    client: ClientName
    salt: str = field(repr=False)


def asked_by(
    ledger: Ledger,
    folder: RunFolder,
    clients: Sequence[ClientName | Returning],
    wanted: str,
    basis: Basis = "none",
) -> list[WantedAnswer]:
    """Return what clients ask for, each once, under the handles that a ledger knows them by.

    Raises:
        RunError: a client is not known to the run.
    """
    handles = {name: handle for handle, name in ledger.names().items()}
    found: dict[ClientName, WantedAnswer] = {}  # who is named twice asks once
    for each in clients:
        back = isinstance(each, Returning)
        name = each.client if back else each
        handle = _unsealed_handle(ledger, each) if back else handles.get(name)
        if handle is None:
            more = "; who left comes back with --salt and the salt of the last answer, unless that "
            raise unknown_client(folder, name, f"{more}was a retraining")
        found[name] = WantedAnswer(handle, wanted, basis, name)
    return [*found.values()]


def _unsealed_handle(ledger: Ledger, returning: Returning) -> Handle | None:
    try:
        salt = bytes.fromhex(returning.salt)
    except ValueError as error:
        raise RunError(
            f"A salt is hexadecimal digits, as the answer printed them, but: {error}. "
            f"Copy it again."
        ) from error
    records = [each.sealed for each in ledger.requests() if each.sealed]
    opened = (unsealed(record, returning.client, salt) for record in records)
    return next((handle for handle in opened if handle is not None), None)


def ask(session: Session, wanted: Sequence[WantedAnswer]) -> list[Request]:
    """Put requests in the ledger's queue, all of them or none, and sign their receipts.

    Their marks are made now: the receipt holds them, and nobody but the requester knows
    the name of who left, so that a request that a crash cuts off is served without it.

    Raises:
        CoveyError: the signing key cannot be used, or the ledger cannot be written;
            nothing was done.
    """
    key = key_of(session.run.config)
    marks = {each.handle: Mark.fresh(each.handle, each.client) for each in wanted}
    requests = put_down(
        session,
        [
            NewRequest(each.handle, each.wanted, basis=each.basis, mark=marks[each.handle])
            for each in wanted
        ],
    )
    hashes = session.record().hashes
    for request in requests:
        mark = marks[request.handle]
        keep_handover(session.folder, key, Handover(request.id, mark.salt))
        if hashes:  # before anything was recorded there is no tree to sign
            sign_receipt(session.folder, key, request, mark.subject, hashes)
    return requests


def put_down(session: Session, new: Sequence[NewRequest]) -> list[Request]:
    """Put requests in the ledger's queue, and in its chain what they ask for.

    Before anything is recorded there is no chain: then they enter it with their answers.
    """
    records = records_of(map(_event, new)) if session.record().hashes else ()
    return session.ledger.ask_all(new, records)


def unrecorded(session: Session, requests: Sequence[Request]) -> Iterator[LeaveRequested]:
    """Yield what is still to be recorded of requests: what the chain does not hold.

    Raises:
        LedgerError: the chain has one of them otherwise.
    """
    events = (event for _, event in session.record().events)
    known = {each.request: each for each in events if isinstance(each, LeaveRequested)}
    for request in requests:
        event, recorded = _event(request), known.get(request.id)
        if recorded is None:
            yield event
        elif recorded != event:
            raise LedgerError(
                f"A request is answered as it was asked, but of {request.id} the table of "
                f"requests says {event}, and the chain {recorded}: the table was changed. "
                f"Restore the ledger from a copy."
            )


def _event(request: Request | NewRequest) -> LeaveRequested:
    subject = request.mark.subject if request.mark else ""
    return LeaveRequested(request.id, request.handle, request.wanted, request.basis, subject)


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
