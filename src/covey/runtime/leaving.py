"""The requests of an operator: explain, plan and carry out that a client leaves."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from covey.base.errors import RunError
from covey.base.history import History
from covey.base.names import Basis, ClientName, Handle
from covey.build.run import BuiltRun
from covey.ledger.requests import Request
from covey.runtime.anchors import Receipt, receipts_of
from covey.runtime.answers import AnsweredRequest
from covey.runtime.copies import erase_from_copies
from covey.runtime.folder import RunFolder
from covey.runtime.loop import Observer, OnAnswer, continue_run
from covey.runtime.places import Place, SearchTarget, search_places
from covey.runtime.planning import ClientPlan, plans_for
from covey.runtime.requests import OnReceipt, Returning, ask, find_clients
from covey.runtime.session import Session, open_session, reading_session
from covey.runtime.states import rounds_in
from covey.unlearning.plan import WantedAnswer

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
    answered: AnsweredRequest = field(metadata={"json": "inline"})
    seconds: float
    receipt: Receipt | None = None


def client_plans(
    run: BuiltRun,
    folder: RunFolder,
    clients: Sequence[ClientName | Returning],
    wanted: str = "auto",
    basis: Basis = "none",
) -> tuple[ClientPlan, ...]:
    """Return what each client would be answered if all of them left now; nothing is done.

    Raises:
        RunError: a client is not known to the run, or they cannot all leave.
    """
    with open_session(run, folder) as session:
        session, known = find_clients(session, run, clients)
        return plans_for(session, _wanted(known, wanted, basis))


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
        session, known = find_clients(session, run, clients)
        requests = _enqueue(session, known, wanted, basis, check)
        receipts = receipts_of(folder, requests)
        for name, request in zip(known, requests, strict=True):
            if request.id in receipts:
                on_receipt(name, receipts[request.id])
        history, answered = continue_run(session, _until(session), observe, on_answer=on_answer)
        by_request = {each.request: each for each in answered}
    seconds = time.monotonic() - began
    return history, tuple(
        ForgetResult(name, by_request[request.id], seconds, receipts.get(request.id))
        for name, request in zip(known, requests, strict=True)
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
        session, known = find_clients(session, run, clients)
        _enqueue(session, known, wanted, basis)


@dataclass(frozen=True, slots=True)
class SetOfClient:
    """An anonymity set that held a client.

    Attributes:
        members: how many clients.
        diameter: the largest L2 distance between two of its updates.
    """

    round: int
    cluster: int
    members: int
    diameter: float | None


@dataclass(frozen=True, slots=True)
class RequestOfClient:
    """A request to leave.

    Attributes:
        wanted: the answer that it names.
        asked: when, ISO 8601.
    """

    wanted: str
    basis: Basis
    state: str
    asked: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is held on one client, and where; no other client is named.

    Attributes:
        handle: by which the ledger's events name it.
        rounds_trained: in which its examples were used.
        risk_threshold: that it accepts; None: the client keeps it to itself.
        risk_figures_that_count_it: rounds.
        prices_that_count_it: rounds.
        states_that_depend_on_it: rounds.
        raw_updates_stored: rounds.
        not_searched: where covey could not look, a sentence each.
    """

    client: ClientName
    handle: Handle
    rounds_trained: tuple[int, ...]
    clusters_trained: tuple[int, ...]
    risk_threshold: float | None
    anonymity_sets: tuple[SetOfClient, ...]
    risk_figures_that_count_it: tuple[int, ...]
    prices_that_count_it: tuple[int, ...]
    states_that_depend_on_it: tuple[int, ...]
    raw_updates_stored: tuple[int, ...]
    requests: tuple[RequestOfClient, ...]
    places: tuple[Place, ...]
    not_searched: tuple[str, ...]


def explain_client(run: BuiltRun, folder: RunFolder, client: ClientName) -> Explanation:
    """Return what is held on a client.

    Raises:
        RunError: the client is not known to the run.
    """
    with reading_session(run, folder) as session:
        (handle,) = find_clients(session, run, [client])[1].values()
        held = session.record().participation
        client_data = session.client(handle)
        trained = held.trained.get(handle, {})
        first = held.first_round(handle)
        states = rounds_in(folder.checkpoints)
        known = frozenset(session.ledger.names().values())
        search = search_places(
            SearchTarget(folder, session.run.config, client, handle, known, first)
        )
        threshold = None
        if client_data is not None and not run.client_backend:
            threshold = client_data.preference.risk_threshold
        return Explanation(
            client=client,
            handle=handle,
            rounds_trained=tuple(sorted(trained)),
            clusters_trained=tuple(sorted(set(trained.values()))),
            risk_threshold=threshold,
            anonymity_sets=tuple(
                SetOfClient(each.round_index, each.cluster, len(each.members), each.diameter)
                for each in held.sets_of(handle)
            ),
            risk_figures_that_count_it=tuple(held.counted["risks"]),
            prices_that_count_it=tuple(held.counted["prices"]),
            states_that_depend_on_it=tuple(t for t in states if first is not None and t >= first),
            raw_updates_stored=tuple(t for t in rounds_in(folder.updates) if t in trained),
            requests=tuple(
                RequestOfClient(r.wanted, r.basis, r.state, r.asked_at)
                for r in session.ledger.requests()
                if r.handle == handle
            ),
            places=tuple(search.places),
            not_searched=tuple(search.not_searched),
        )


def _enqueue(
    session: Session,
    known: Mapping[ClientName, Handle],
    wanted: str,
    basis: Basis,
    check: CheckPlan = lambda _: None,
) -> list[Request]:
    """Put requests in the queue, all of them or none."""
    asked = _wanted(known, wanted, basis)
    plans = plans_for(session, asked)
    for each in plans:
        check(each)
    for each in plans:
        if each.chosen is None:
            who = f"{each.client}: " if len(known) > 1 else ""
            raise RunError(f"{who}{each.reason}")
    for name, handle in known.items():
        if session.ledger.name_of(handle) is None:  # nobody else knows who comes back
            present = session.ledger.names().values()
            erase_from_copies(session.folder, name, {*present, name})
    return ask(session, asked)


def _wanted(
    known: Mapping[ClientName, Handle], wanted: str, basis: Basis
) -> dict[ClientName, WantedAnswer]:
    return {name: WantedAnswer(handle, wanted, basis) for name, handle in known.items()}
