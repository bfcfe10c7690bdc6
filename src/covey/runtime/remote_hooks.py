"""What the loop does otherwise where the clients are really apart."""

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
from covey.ledger import Asking, Record
from covey.runtime.evaluation import Accuracies
from covey.runtime.folder import Word
from covey.runtime.session import Desk
from covey.runtime.unlearning_executor import usual_wish
from covey.types import ClientName

__all__ = ["Gathered", "gathered", "noted", "reported", "rewound", "stalled"]


class Gathered(NamedTuple):
    """Who there is before a round.

    Attributes:
        desk: the run with everybody who ever came, but those who have left.
        here: who can be asked now.
        joined: what is told of those who came since the last round.
    """

    desk: Desk
    here: Cohort
    joined: tuple[Event, ...] = ()


def gathered(desk: Desk) -> Gathered:
    """Look once who is here, and let newcomers in, unless they have left."""
    if desk.run.client_backend is None:
        return Gathered(desk, desk.run.population.clients)
    known = {client.handle for client in desk.run.population.clients}
    names = desk.run.client_backend.available_clients()
    desk = desk.welcoming(names)
    here = tuple(c for c in desk.run.population.clients if c.name in names)
    new = tuple(c.handle for c in here if c.handle not in known)
    return Gathered(desk, here, (ClientsJoined(new),) if new else ())


def rewound(desk: Desk, round_index: int) -> None:
    """Give up rounds that are recorded and whose state was lost: nobody can repeat them.

    What they released stays recorded; they are played anew.
    """
    last = desk.ledger.last_round()
    if desk.run.client_backend is None or last is None:
        return
    if round_index > last or round_index == desk.run.config.rounds:
        return
    fact = RunRolledBack(round_index, last + 1, "anew")
    desk.ledger.append_between([Record(None, *kind_and_body(fact))])
    desk.secrets.begin_again_at(round_index)


def reported(facts: Sequence[Event]) -> Accuracies:
    """Return the accuracies that clients tell of themselves."""
    told = [each.accuracy for each in facts if isinstance(each, ClientsReported)]
    return {handle: value for each in told for handle, value in each.items()}


def stalled(state: ServerState, facts: Sequence[Event]) -> ServerState:
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


def noted(desk: Desk, leaving: Iterable[ClientName]) -> None:
    """Put down who asks to be forgotten, once each: through its node, or in the folder."""
    handles = {client.name: client.handle for client in desk.run.population.clients}
    asked = {request.handle for request in desk.ledger.requests()}
    words = (Word(name, usual_wish(desk.run.config)) for name in leaving)
    for name, wanted, basis in (*words, *desk.folder.words_left()):
        if name in handles and handles[name] not in asked:
            desk.ledger.ask_together([Asking(handles[name], wanted, basis=basis)])
            asked.add(handles[name])
