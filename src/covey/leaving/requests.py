"""Requests to leave: how they come into a run's ledger.

Each is in its table of requests and in its chain, and its requester gets a signed receipt.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from covey.base.errors import LedgerError
from covey.base.events import LeaveRequested
from covey.base.names import ClientName
from covey.leaving.handover import Handover, fresh_mark, keep_handover
from covey.ledger.requests import LeaveRequest
from covey.runs.folder import QueuedRequest
from covey.runs.receipts import Receipt, key_of, sign_receipt
from covey.runs.session import Session
from covey.settings.aggregation import anonymity_of
from covey.settings.load import Config

OnReceipt = Callable[[ClientName, Receipt], None]
"""Called with a client's name and its receipt, before it is answered."""


def submit_requests(
    session: Session, wanted: Sequence[LeaveRequest]
) -> tuple[Session, list[LeaveRequest]]:
    """Record requests in the ledger, all of them or none, and sign their receipts.

    Their marks are made now: the receipt holds them, and only the requester has
    the name of who left, so that a request that a crash cuts off is served without it.

    Raises:
        CoveyError: the signing key cannot be used, or the ledger cannot be written;
            nothing was done.
    """
    key = key_of(session.run.config)
    marks = {leaver.id: fresh_mark(leaver.handle, leaver.client) for leaver in wanted}
    session, requests = _record(
        session, [replace(leaver, mark=marks[leaver.id]) for leaver in wanted]
    )
    hashes = session.record.hashes
    for request in requests:
        mark = marks[request.id]
        keep_handover(session.folder, key, Handover(request.id, mark.salt))
        if hashes:  # before anything was recorded there is no tree to sign
            sign_receipt(session.folder, key, request, mark.subject, hashes)
    return session, requests


def take_up(session: Session, leaving: Iterable[ClientName] = ()) -> Session:
    """Record what was requested: by a client's node once, in the folder unless one waits."""
    before = session.roster.requests
    handles = {client.name: client.handle for client in session.run.population.clients}
    handles |= session.roster.stopped
    ever = {request.handle for request in before}
    waiting = {request.handle for request in before if request.is_open}
    own = [QueuedRequest(name, default_answer(session.run.config)) for name in leaving]
    new = [leaver for leaver in own if handles.get(leaver.client) not in ever]
    for name, wanted, basis in (*new, *session.folder.take_requests()):
        if name in handles and handles[name] not in waiting:
            session, _ = submit_requests(
                session, [LeaveRequest(handles[name], wanted, basis, name)]
            )
            waiting.add(handles[name])
    return session


def with_simulated(session: Session, t: int) -> Session:
    """Record the request that a simulation draws before round t, if it draws one."""
    config = session.run.config
    chance, clients = (config.leaving.request_probability, session.run.population.clients)
    if chance == 0 or t == 0 or len(clients) < 2 or session.run.data_hash is None:
        return session  # of a run that cannot be played on, nothing is drawn
    generator = session.run.streams.at("request", t - 1).generator()
    is_known = any(request.after_round == t - 1 for request in session.roster.requests)
    if generator.random() >= chance or is_known:
        return session
    leaver = clients[int(generator.integers(len(clients)))]
    drawn = f"{leaver.handle} after round {t - 1}"  # equal runs have equal chains
    new = LeaveRequest(
        leaver.handle,
        default_answer(config),
        after_round=t - 1,
        id=hashlib.sha256(drawn.encode()).hexdigest()[:16],
    )
    return _record(session, [new])[0]


def default_answer(config: Config) -> str:
    """Return the answer for a client that only says that it leaves."""
    if anonymity_of(config) or config.method.declares("subtracts"):
        return "auto"
    return "calibrate" if config.leaving.store_updates else "retrain"


def unrecorded(session: Session, requests: Sequence[LeaveRequest]) -> Iterator[LeaveRequested]:
    """Yield what is still to be recorded of requests: what the chain does not hold.

    Raises:
        LedgerError: the chain has one of them otherwise.
    """
    events = (event for _, event in session.record.events)
    known = {event.request: event for event in events if isinstance(event, LeaveRequested)}
    for request in requests:
        event, recorded = _event(request), known.get(request.id)
        if recorded is None:
            yield event
        elif recorded != event:
            raise LedgerError(
                f"A request must be answered as it was made, found {event} of {request.id} in the "
                f"table of requests, and in the chain {recorded}: restore the ledger from a copy."
            )


def _record(session: Session, new: Sequence[LeaveRequest]) -> tuple[Session, list[LeaveRequest]]:
    """Record requests in the ledger's table, and in its chain what they ask for.

    Before anything is recorded there is no chain: then they enter it with their answers.
    """
    records = session.following(map(_event, new)) if session.record.hashes else ()
    requests, links = session.ledger.add_requests(new, records)
    return session.with_written(links), requests


def _event(request: LeaveRequest) -> LeaveRequested:
    subject = request.mark.subject if request.mark else ""
    return LeaveRequested(request.id, request.handle, request.wanted, request.basis, subject)
