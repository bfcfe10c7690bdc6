"""What the loop does differently where clients are remote."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from covey.aggregation import NOT_FINITE
from covey.algorithms import Cohort, ServerState, Stalled
from covey.events import (
    AnswerRefused,
    ClientsJoined,
    ClientsReported,
    Event,
    ModelsMerged,
    RunRolledBack,
    kind_and_body,
)
from covey.ledger import Record
from covey.runtime.evaluation import Accuracies
from covey.runtime.folder import QueuedRequest
from covey.runtime.receipts import ask_with_receipts
from covey.runtime.session import Session
from covey.runtime.subtracting import is_subtracting
from covey.runtime.unlearning_executor import default_answer
from covey.types import ClientName
from covey.unlearning import WantedAnswer

__all__ = [
    "PresentClients",
    "gather_present",
    "queue_requests",
    "reported_accuracies",
    "roll_back_lost_rounds",
    "with_stalled_clusters",
]


class PresentClients(NamedTuple):
    """The clients present before a round.

    Attributes:
        session: the run with everybody who ever came, but those who have left.
        present: who can be asked now.
        joined: what is told of those who came since the last round.
    """

    session: Session
    present: Cohort
    joined: tuple[Event, ...] = ()


def gather_present(session: Session) -> PresentClients:
    """Return the clients present; newcomers join, unless they have left."""
    if session.run.client_backend is None:
        return PresentClients(session, session.run.population.clients)
    known = {client.handle for client in session.run.population.clients}
    names = session.run.client_backend.available_clients()
    session = session.with_newcomers(names)
    present = tuple(c for c in session.run.population.clients if c.name in names)
    new = tuple(c.handle for c in present if c.handle not in known)
    return PresentClients(session, present, (ClientsJoined(new),) if new else ())


def roll_back_lost_rounds(session: Session, round_index: int) -> None:
    """Roll back recorded rounds whose state was lost where they cannot be repeated.

    What they released stays recorded; they are played anew.
    """
    last = session.ledger.last_round()
    if session.run.client_backend is None or last is None or is_subtracting(session):
        return  # a round of which the sums are known can be
    if round_index > last or round_index == session.rounds:
        return
    fact = RunRolledBack(round_index, last + 1, "anew")
    session.ledger.append_between([Record(None, *kind_and_body(fact))])
    session.secrets.restart_at(round_index)


def reported_accuracies(facts: Sequence[Event]) -> Accuracies:
    """Return the accuracies that clients report."""
    accuracies = [each.accuracy for each in facts if isinstance(each, ClientsReported)]
    return {handle: value for each in accuracies for handle, value in each.items()}


def with_stalled_clusters(state: ServerState, facts: Sequence[Event]) -> ServerState:
    """Return the state of a round that may have got no update but refused ones.

    The nodes' answers are refused before a strategy sees them: where all that came were
    not finite, no model moved, and none is what its clients' training makes of it.
    """
    merged = [each for each in facts if isinstance(each, ModelsMerged)]
    moved = any(any(each.participants) for each in merged)
    refused = any(
        isinstance(each, AnswerRefused) and each.reason.endswith(NOT_FINITE)
        for each in facts
    )
    before = state.kept(Stalled).clusters
    if moved or not (refused or before):
        return state.keeping(Stalled()) if before else state
    return state.keeping(Stalled(clusters=frozenset(range(len(state.clusters)))))


def queue_requests(session: Session, leaving: Iterable[ClientName]) -> None:
    """Queue requests to leave, once per client: from its node, or from the folder."""
    handles = {client.name: client.handle for client in session.run.population.clients}
    asked = {request.handle for request in session.ledger.requests()}
    queued = (
        QueuedRequest(name, default_answer(session.run.config)) for name in leaving
    )
    for name, wanted, basis in (*queued, *session.folder.take_requests()):
        if name in handles and handles[name] not in asked:
            ask_with_receipts(
                session, {name: WantedAnswer(handles[name], wanted, basis)}
            )
            asked.add(handles[name])
