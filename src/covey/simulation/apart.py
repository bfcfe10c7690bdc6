"""What the loop does otherwise where the clients are really apart."""

from collections.abc import Iterable, Sequence

from covey.events import (
    ClientsJoined,
    ClientsReported,
    Event,
    RunRolledBack,
    kind_and_body,
)
from covey.ledger import Record
from covey.simulation.desk import Desk
from covey.simulation.leaving import usual_wish
from covey.simulation.measurement import Accuracies
from covey.types import ClientName

__all__ = ["noted", "reported", "rewound", "with_newcomers"]


def with_newcomers(desk: Desk) -> tuple[Desk, tuple[Event, ...]]:
    """Let clients in that have come since the last round, unless they have left."""
    if desk.run.federation is None:
        return desk, ()
    known = {client.handle for client in desk.run.population.clients}
    desk = desk.welcoming(desk.run.federation.present())
    everybody = (client.handle for client in desk.run.population.clients)
    new = tuple(handle for handle in everybody if handle not in known)
    return desk, (ClientsJoined(new),) if new else ()


def rewound(desk: Desk, round_index: int) -> None:
    """Give up rounds that are recorded and whose state was lost: nobody can repeat them.

    What they released stays recorded; they are played anew.
    """
    last = desk.ledger.last_round()
    lost = (
        last is not None
        and round_index <= last
        and round_index < desk.run.config.rounds
    )
    if desk.run.federation is None or last is None or not lost:
        return
    fact = RunRolledBack(round_index, last + 1, "anew")
    desk.ledger.append_between([Record(None, *kind_and_body(fact))])
    desk.secrets.begin_again_at(round_index)


def reported(facts: Sequence[Event]) -> Accuracies:
    """Return the accuracies that clients tell of themselves."""
    told = [each.accuracy for each in facts if isinstance(each, ClientsReported)]
    return {handle: value for each in told for handle, value in each.items()}


def noted(desk: Desk, leaving: Iterable[ClientName]) -> None:
    """Put down who asks to be forgotten, once each: through its node, or in the folder."""
    handles = {client.name: client.handle for client in desk.run.population.clients}
    asked = {request.handle for request in desk.ledger.requests()}
    words = ((name, usual_wish(desk.run.config)) for name in leaving)
    for name, wanted in (*words, *desk.folder.words_left()):
        if name in handles and handles[name] not in asked:
            desk.ledger.ask(handles[name], wanted)
            asked.add(handles[name])
