"""The requests of an operator: plan and carry out that a client leaves."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from covey.base.as_json import INLINE
from covey.base.errors import RunError
from covey.base.history import History
from covey.base.names import Basis, ClientName
from covey.build.run import BuiltRun
from covey.ledger.requests import Request
from covey.runtime.anchors import Receipt, receipts_of
from covey.runtime.answers import AnsweredRequest
from covey.runtime.copies import erase_from_copies
from covey.runtime.folder import RunFolder
from covey.runtime.loop import Observer, OnAnswer, continue_run
from covey.runtime.planning import plans_for
from covey.runtime.requests import OnReceipt, Returning, ask, asked_by
from covey.runtime.session import Session, open_session
from covey.unlearning.plan import ClientPlan, WantedAnswer

CheckPlan = Callable[[ClientPlan], None]
"""Called with a client's plan, before anything is done; it may refuse."""


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """A client's request, and what came of it.

    Attributes:
        seconds: from the request to the signed answers.
        receipt: what was signed when it was asked; None: nothing was recorded yet.
    """

    client: ClientName
    answered: AnsweredRequest = field(metadata=INLINE)
    seconds: float
    receipt: Receipt | None = None


def forget(  # noqa: PLR0913, PLR0917 - the last five have defaults
    run: BuiltRun,
    folder: RunFolder,
    clients: Sequence[ClientName | Returning],
    wanted: str = "auto",
    basis: Basis = "none",
    observe: Observer = lambda _: None,
    on_answer: OnAnswer = lambda _: None,
    check: CheckPlan = lambda _: None,
    on_receipt: OnReceipt = lambda *_: None,
) -> tuple[History, tuple[ForgetResult, ...]]:
    """Let clients leave, and play again, once for all, what has to be played again.

    An unfinished run is not carried on. `on_answer` is as in `continue_run`; `check` is
    called with each client's plan before anything is done, `on_receipt` with each client's
    name and receipt before anything is answered.

    Returns:
        The story, and what came of each request, but for those that requests from
            before made impossible.

    Raises:
        RunError: a client is not known, or an answer would not be true; nothing was
            done.
    """
    began = time.monotonic()
    with _data_set_aside(), open_session(run, folder) as session:
        asked = asked_by(session.ledger, folder, clients, wanted, basis)
        session = session.with_data_of(run, asked)
        requests = _enqueue(session, asked, check)
        receipts = receipts_of(folder, requests)
        for each, request in zip(asked, requests, strict=True):
            if request.id in receipts:
                on_receipt(each.client, receipts[request.id])
        history, answered = continue_run(session, _until(session), observe, on_answer=on_answer)
        by_request = {each.request: each for each in answered}
    seconds = time.monotonic() - began
    return history, tuple(
        ForgetResult(each.client, by_request[request.id], seconds, receipts.get(request.id))
        for each, request in zip(asked, requests, strict=True)
        if request.id in by_request
    )


def finish_requests(
    run: BuiltRun,
    folder: RunFolder,
    observe: Observer = lambda _: None,
    on_answer: OnAnswer = lambda _: None,
) -> tuple[AnsweredRequest, ...]:
    """Answer the requests that were asked before, and nothing else.

    An unfinished run is not carried on; one whose end is recorded has it again.
    """
    with _data_set_aside(), open_session(run, folder) as session:
        until = _until(session)
        return continue_run(session, until, observe, on_answer=on_answer)[1]


def _until(session: Session) -> int:
    """Return the round before which to stop, so that an unfinished run stays so.

    Rounds that a killed answer rolled back, and did not play again yet, come before it.
    """
    last = session.ledger.last_round()
    owed = [each.served.until for each in session.ledger.requests() if each.served]
    played = 0 if last is None else last + 1
    return min(max([played, *owed]), session.rounds)


@contextmanager
def _data_set_aside() -> Iterator[None]:
    """Look for garbage among what is made meanwhile, not among all clients' data too."""
    if gc.get_freeze_count():  # a program did it by itself
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def enqueue_requests(
    run: BuiltRun,
    folder: RunFolder,
    clients: Sequence[ClientName | Returning],
    wanted: str = "auto",
    basis: Basis = "none",
) -> None:
    """Queue these clients' requests for the next process that runs the rounds.

    Raises:
        RunError: a client is not known, or an answer would not be true; nothing was
            done.
    """
    with open_session(run, folder) as session:
        _enqueue(session, asked_by(session.ledger, folder, clients, wanted, basis))


def _enqueue(
    session: Session, asked: Sequence[WantedAnswer], check: CheckPlan = lambda _: None
) -> list[Request]:
    """Put requests in the queue, all of them or none."""
    plans = plans_for(session.run.config, session.folder, session.ledger, asked)
    for each in plans:
        check(each)
    for each in plans:
        if each.chosen is None:
            who = f"{each.client}: " if len(asked) > 1 else ""
            raise RunError(f"{who}{each.reason}")
    for each in asked:
        if session.ledger.name_of(each.handle) is None:  # nobody else knows who comes back
            present = session.ledger.names().values()
            erase_from_copies(session.folder, each.client, {*present, each.client})
    return ask(session, asked)
