"""One answer as it stands in a ledger's chain, with its request and what came before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from covey.events import (
    ClientLeft,
    Event,
    LeaveRequested,
    RunRolledBack,
    RunStarted,
)
from covey.history import history_of
from covey.ledger import Record, Request, current_records
from covey.runtime.ledger_record import by_entry
from covey.runtime.recorded_events import event_of
from covey.unlearning import Participation, participation_of

__all__ = ["AnswerEvents", "answer_events"]


@dataclass(frozen=True, slots=True)
class AnswerEvents:
    """One answer, as it stands in the ledger.

    Attributes:
        asked: the request as it was put down.
        given: the answer.
        before: the current story that it was judged by.
        end: the position of the last event that was written with the answer.
        facts: what was written with it, in order.
        x: the deniability threshold that was in force; None: there are no sets.
    """

    request: Request
    asked: LeaveRequested
    given: ClientLeft
    before: Sequence[tuple[int | None, Event]]
    began: RunStarted
    end: int
    facts: Sequence[Event]
    x: int | None

    @property
    def batch(self) -> list[ClientLeft]:
        """All who were answered at once, in order."""
        return [each for each in self.facts if isinstance(each, ClientLeft)]

    @property
    def rewind(self) -> RunRolledBack | None:
        """How rounds were played again; None: none was."""
        return next((e for e in self.facts if isinstance(e, RunRolledBack)), None)

    def participation(self, *, until_own: bool = False) -> Participation:
        """Return who took part in what, with all of the batch, or those before, gone."""
        known = participation_of(self.before)
        gone = [each.handle for each in self.batch]
        if until_own:
            gone = gone[: gone.index(self.given.handle)]
        return replace(known, left=tuple(dict.fromkeys((*known.left, *gone))))


def answer_events(
    records: Sequence[Record], times: Mapping[int, str], request: Request
) -> AnswerEvents | None:
    """Return the answer to a request; None: the chain does not hold both, each once.

    Args:
        records: of the chain.
        times: when each entry was written, by the position of its last event.
        request: as the table has it.
    """
    asked = _of_request(records, LeaveRequested.__name__, request.id)
    given = _of_request(records, ClientLeft.__name__, request.id)
    started = [event_of(r) for r in records if r.kind == "RunStarted"]
    if len(asked) != 1 or len(given) != 1 or asked[0] > given[0] or not started:
        return None
    start = max((at for at in times if at < given[0]), default=0)
    end = min((at for at in times if at >= given[0]), default=given[0])
    entries = by_entry(current_records(records[:start]))
    known = history_of(entries).started
    began = known or started[0]  # who left before the first round
    if not isinstance(began, RunStarted):
        return None
    asked_event, given_event = (
        event_of(records[at - 1]) for at in (asked[0], given[0])
    )
    if not isinstance(asked_event, LeaveRequested):
        return None
    if not isinstance(given_event, ClientLeft):
        return None
    return AnswerEvents(
        request=request,
        asked=asked_event,
        given=given_event,
        before=[(t, e) for t, events in entries for e in events],
        began=began,
        end=end,
        facts=[event_of(r) for r in records[start:end]],
        x=began.deniability_threshold,
    )


def _of_request(records: Sequence[Record], kind: str, request: str) -> list[int]:
    """Return the positions, from 1 on, of events of this kind about a request."""
    return [
        at
        for at, r in enumerate(records, 1)
        if r.kind == kind and r.body.get("request") == request
    ]
