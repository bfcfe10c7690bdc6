"""Events as they are read from a ledger: what cannot be one is told with its position.

A chain that holds proves only that nothing was changed since it was sealed. Who can seal it
can put anything there; so each event is also compared with what was recorded before it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, cast

from covey.columns import HandleMap
from covey.events import (
    AnonymitySetsFormed,
    ClientLeft,
    ClientsAssigned,
    ClientsJoined,
    CohortSampled,
    Event,
    MovesWaited,
    RunRolledBack,
    RunStarted,
    SumGivenUp,
    event_from,
)
from covey.ledger import Record
from covey.ledger.chain import no_event
from covey.types import Handle

__all__ = ["StoryReader", "event_of"]


def event_of(record: Record) -> Event:
    """Return what a ledger's record says, by itself.

    Raises:
        LedgerError: it is no event; the message names its position.
    """
    try:
        return event_from(record.kind, record.body)
    except (ValueError, TypeError, RecursionError) as error:
        raise no_event(record.position, str(error)) from error


class StoryReader:
    """Reads a ledger's events in their order, superseded ones too.

    What comes after a start must fit it: its clients, its clusters, its rounds.
    """

    def __init__(self) -> None:
        self._began: RunStarted | None = None
        self._known: set[Handle] = set()
        self._round = -1
        self._in_round: set[type[Event]] = set()

    def read(self, record: Record) -> Event:
        """Return the next event.

        Raises:
            LedgerError: it is none, or contradicts those before it; the message names
                its position.
        """
        event = event_of(record)
        if problem := self._problem(record.round_index, event):
            raise no_event(record.position, problem)
        return event

    def _problem(self, t: int | None, event: Event) -> str:
        problem = self._out_of_order(t, event) if t is not None else ""
        if t is None and isinstance(event, RunStarted | CohortSampled):
            problem = f"a {type(event).__name__} belongs to a round"
        if problem or self._began is None:
            return problem
        match event:
            case RunRolledBack(round_index=first):
                self._round, self._in_round = min(self._round, first - 1), set()
            case RunStarted(groups=found):
                self._known.update(found)
            case ClientsJoined(handles=handles):
                self._known.update(handles)
            case _:
                pass
        return self._out_of_range(t, event)

    def _out_of_order(self, t: int, event: Event) -> str:
        """Say why an event cannot be of this round; "": it can."""
        kind, before = type(event), self._round
        if t != before:
            self._round, self._in_round = t, set()
        twice = kind in self._in_round and kind in (RunStarted, CohortSampled)
        self._in_round.add(kind)
        if kind is RunStarted and t == 0:
            self._began = cast("RunStarted", event)
        began = self._began
        reasons = (
            (t < before, f"it is of round {t}, and round {before} came before"),
            (twice, f"its round has another {kind.__name__}"),
            (kind is RunStarted and t > 0, f"a run starts in round 0, not in {t}"),
            (began is None, "no start of the run comes before it"),
            (began and t > began.rounds, f"its run has no round {t}"),
            (
                kind is ClientsAssigned
                and CohortSampled not in self._in_round
                and cast("ClientsAssigned", event).by != "final",
                "no cohort was drawn in its round before it",
            ),
        )
        return next((reason for holds, reason in reasons if holds), "")

    def _out_of_range(self, t: int | None, event: Event) -> str:
        count = self._began.num_clusters if self._began else 0
        last = max(_clusters(event), default=0)
        if not 0 <= last < count:
            return f"it names cluster {last}, and there are 0 to {count - 1}"
        if t is None and not isinstance(event, ClientLeft):
            return ""  # who joins chooses first
        handles = tuple(_handles(event))
        strange = next((h for h in handles if h not in self._known), None)
        if strange is not None:
            return f"it names a client that never joined: {strange!a}"
        if isinstance(event, CohortSampled) and len(set(handles)) < len(handles):
            return "it names a client twice"
        return ""


def _clusters(event: Event) -> Iterable[int]:
    """Return the clusters that an event names; of columns no more than what they hold."""
    if isinstance(event, ClientsAssigned):
        clusters = event.clusters
        return clusters.cells if isinstance(clusters, HandleMap) else clusters.values()
    found: Any = getattr(event, "cluster", None)
    if isinstance(found, int):
        return (found,)
    several: Any = getattr(event, "clusters", ())
    return cast("Iterable[int]", several)


def _handles(event: Event) -> Iterator[Handle]:
    """Yield the clients that an event names."""
    for name in (
        "handle",
        "risk_thresholds",
        "groups",
        "steps",
        "weights",
        "accuracy",
    ):
        found: Any = getattr(event, name, None)
        if isinstance(found, str):
            yield found
        elif isinstance(found, Mapping):
            yield from cast("Mapping[Handle, object]", found)
    if isinstance(event, ClientsAssigned):
        yield from event.clusters
    if isinstance(event, AnonymitySetsFormed):
        yield from chain.from_iterable(event.sets)
    if isinstance(event, MovesWaited | SumGivenUp):
        yield from event.clients
    handles: Any = getattr(event, "handles", ())
    yield from handles
