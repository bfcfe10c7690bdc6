"""Requests to leave an open run: recorded, planned, answered."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from covey.base.as_json import INLINE
from covey.base.errors import RunError
from covey.base.names import Basis, ClientName
from covey.leaving.case import OnAnswer, carried_over, case_of, play
from covey.leaving.copies import erase_from_copies
from covey.leaving.planning import ClientPlan, ReturningClient, plans_for, wanted_answers_of
from covey.leaving.requests import OnReceipt, submit_requests
from covey.leaving.signing import AnsweredRequest
from covey.ledger.requests import LeaveRequest
from covey.runs.receipts import Receipt, receipts_of
from covey.runs.session import Session, no_op

CheckPlan = Callable[[ClientPlan], None]
"""Called with a client's plan, before anything is done; it may refuse."""


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """A client's request, and what came of it.

    Attributes:
        seconds: from the request to the signed answers.
        receipt: what was signed for the request; None: nothing was recorded yet.
    """

    client: ClientName
    answered: AnsweredRequest = field(metadata=INLINE)
    seconds: float
    receipt: Receipt | None = None


def forget(
    session: Session,
    clients: Sequence[ClientName | ReturningClient],
    wanted: str = "auto",
    basis: Basis = "none",
    *,
    on_answer: OnAnswer = no_op,
    on_receipt: OnReceipt = no_op,
    check: CheckPlan = no_op,
) -> tuple[ForgetResult, ...]:
    """Let clients leave, and play again, once for all, what has to be played again.

    An unfinished run is not carried on. `on_answer` is as in `play`; `check` is called
    with each client's plan before anything is done, `on_receipt` with each client's name
    and receipt before anything is answered.

    Returns:
        What came of each request, but for those that requests from before made impossible.

    Raises:
        RunError: a client is not known, or an answer would not be true; nothing was
            done.
    """
    session, requests = record_requests(session, clients, wanted, basis, check)
    receipts = receipts_of(session.folder, requests)
    for request in requests:
        if request.id in receipts:
            on_receipt(request.client, receipts[request.id])
    done = finish_requests(session.with_data_of(requests), on_answer)
    answered = {answer.request: answer for answer in done}
    seconds = time.monotonic() - session.began
    return tuple(
        ForgetResult(request.client, answered[request.id], seconds, receipts.get(request.id))
        for request in requests
        if request.id in answered
    )


def finish_requests(session: Session, on_answer: OnAnswer = no_op) -> tuple[AnsweredRequest, ...]:
    """Answer the requests that were recorded before, and nothing else.

    An unfinished run is not carried on, so that the rounds are played that are recorded, or
    that a killed answer rolled back and did not play again yet; one whose end is recorded
    has it again.
    """
    case = case_of(session)
    owed = case.until if case else 0
    until = min(max(session.record.next_round, owed), session.rounds)
    return play(session, until, on_answer=on_answer)


def record_requests(
    session: Session,
    clients: Sequence[ClientName | ReturningClient],
    wanted: str,
    basis: Basis,
    check: CheckPlan = no_op,
) -> tuple[Session, list[LeaveRequest]]:
    """Put these clients' requests down, all of them or none, for the process that plays the rounds.

    Raises:
        RunError: a client is not known, or an answer would not be true; nothing was
            done.
    """
    config, folder, roster = session.run.config, session.folder, session.roster
    requests = wanted_answers_of(roster, folder, clients, wanted, basis)
    plans = plans_for(config, folder, session.ledger, roster, requests)
    for plan in plans:
        check(plan)
    for plan in plans:
        if plan.chosen is None:
            prefix = f"{plan.client}: " if len(requests) > 1 else ""
            raise RunError(f"{prefix}{plan.reason}")
    chosen = [plan.chosen for plan in plans if plan.chosen]
    if problem := carried_over(session, [request.handle for request in requests], chosen):
        raise RunError(problem)
    names = roster.names
    for request in requests:
        if request.handle not in names:  # only the requester can name who comes back
            erase_from_copies(folder, request.client, {*names.values(), request.client})
    return submit_requests(session, requests)
