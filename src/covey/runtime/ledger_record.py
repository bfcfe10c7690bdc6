"""What a ledger holds, verified and read once, also while it grows.

A chain that holds proves only that nothing was changed since it was sealed. Who can seal it
can put anything there; so each event is also compared with what was recorded before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby, islice
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, cast

from covey.base import events
from covey.base.events import Event, event_from, kind_and_body
from covey.base.history import History, history_of, with_entries
from covey.base.names import Handle
from covey.ledger.chain import GENESIS, Link, Record, no_event
from covey.ledger.store import Ledger
from covey.unlearning.participation import Participation, participation_of

Fact = tuple[int | None, Event]
"""An event with its round; None: it happened between two."""

Entry = tuple[int | None, list[Event]]
"""What was recorded at once: of one round, or between two (None)."""


def event_of(record: Record) -> Event:
    """Return what a ledger's record says, by itself.

    Raises:
        LedgerError: it is no event; the message names its position.
    """
    try:
        return event_from(record.kind, record.body)
    except (ValueError, TypeError, RecursionError) as error:
        raise no_event(record.position, str(error)) from error


def records_of(events: Iterable[Event], round_index: int | None = None) -> list[Record]:
    """Return events as a ledger records them: of a round or, None, between two."""
    return [Record(round_index, *kind_and_body(event)) for event in events]


def by_round(facts: Iterable[Fact]) -> Iterator[Entry]:
    """Group facts that follow each other in one round, or between two."""
    for t, entry in groupby(facts, key=itemgetter(0)):
        yield t, [event for _, event in entry]


class EventReader:
    """Reads a ledger's events in their order, superseded ones too.

    What comes after a start must fit it: its clients, its clusters, its rounds.
    """

    def __init__(self) -> None:
        self._began: events.RunStarted | None = None
        self._known: set[Handle] = set()
        self._round = -1
        self._in_round: set[type[Event]] = set()

    def read(self, record: Record) -> Event:
        """Return the next event; one that is refused leaves no trace.

        Raises:
            LedgerError: it is none, or contradicts those before it; the message names
                its position.
        """
        event, t = event_of(record), record.round_index
        in_round = self._in_round if t == self._round else set[type[Event]]()
        began = event if isinstance(event, events.RunStarted) and t == 0 else self._began
        if problem := self._out_of_order(t, event, in_round) or self._out_of_range(t, event, began):
            raise no_event(record.position, problem)
        if t is not None:
            self._round, self._in_round, self._began = t, in_round | {type(event)}, began
        elif began and (first := _rewound_to((t, event))) is not None:
            self._round, self._in_round = min(self._round, first - 1), set()
        if began:
            self._known.update(_joining(event))
        return event

    def _out_of_order(self, t: int | None, event: Event, in_round: set[type[Event]]) -> str:
        """Say why an event cannot be of this round; "": it can."""
        once = isinstance(event, events.RunStarted | events.CohortSampled)
        kind, is_start = type(event).__name__, isinstance(event, events.RunStarted)
        if t is None:
            return f"a {kind} belongs to a round" if once else ""
        began = self._began
        chosen = isinstance(event, events.ClientsAssigned) and event.by != "final"
        reasons = (
            (t < self._round, f"it is of round {t}, and round {self._round} came before"),
            (once and type(event) in in_round, f"its round has another {kind}"),
            (is_start and t > 0, f"a run starts in round 0, not in {t}"),
            (not is_start and began is None, "no start of the run comes before it"),
            (began and not is_start and t > began.rounds, f"its run has no round {t}"),
            (
                chosen and events.CohortSampled not in in_round,
                "no cohort was drawn in its round before it",
            ),
        )
        return next((reason for holds, reason in reasons if holds), "")

    def _out_of_range(self, t: int | None, event: Event, began: events.RunStarted | None) -> str:
        if began is None:
            return ""
        last = max(_clusters(event), default=0)
        if not 0 <= last < began.num_clusters:
            return f"it names cluster {last}, and there are 0 to {began.num_clusters - 1}"
        if t is None and not isinstance(event, events.ClientLeft):
            return ""  # a newcomer may request to leave in the round that records it
        handles, joining = tuple(_handles(event)), {*_joining(event)}
        strange = next((h for h in handles if h not in self._known and h not in joining), None)
        if strange is not None:
            return f"it names a client that never joined: {strange!a}"
        if isinstance(event, events.CohortSampled) and len(set(handles)) < len(handles):
            return "it names a client twice"
        return ""


def _joining(event: Event) -> Iterable[Handle]:
    """Return the clients that are known from an event on."""
    if isinstance(event, events.RunStarted):
        return event.groups
    return event.handles if isinstance(event, events.ClientsJoined) else ()


def _clusters(event: Event) -> Iterable[int]:
    """Return the clusters that an event names."""
    if isinstance(event, events.ClientsAssigned):
        return event.clusters.values()
    cluster: Any = getattr(event, "cluster", None)
    if isinstance(cluster, int):
        return (cluster,)
    several: Any = getattr(event, "clusters", ())
    return cast("Iterable[int]", several)


def _handles(event: Event) -> Iterator[Handle]:
    """Yield the clients that an event names."""
    for name in ("handle", "risk_thresholds", "groups", "steps", "weights", "accuracy"):
        value: Any = getattr(event, name, None)
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from cast("Mapping[Handle, object]", value)
    if isinstance(event, events.ClientsAssigned):
        yield from event.clusters
    if isinstance(event, events.AnonymitySetsFormed):
        yield from chain.from_iterable(event.sets)
    if isinstance(event, events.ClientsWaited | events.SumGivenUp):
        yield from event.clients
    handles: Any = getattr(event, "handles", ())
    yield from handles


@dataclass(frozen=True, eq=False)
class LedgerRecord:
    """All that was in a ledger when it was read, and what follows from it.

    Attributes:
        hashes: of every event, in order.
        facts: every event, those of superseded rounds too.
    """

    hashes: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    _folded: tuple[int, History] = field(default=(0, History()), repr=False)

    @property
    def head(self) -> str:
        """The hash that seals all of it."""
        return self.hashes[-1] if self.hashes else GENESIS

    def until(self, position: int) -> "LedgerRecord":
        """Return what was in the ledger when it ended at a position."""
        if position == len(self.hashes):
            return self
        return LedgerRecord(self.hashes[:position], self.facts[:position])

    def followed_by(self, hashes: Sequence[str], facts: Sequence[Fact]) -> "LedgerRecord":
        """Return what is in a ledger to which these were added."""
        known = vars(self).get("history")
        if known is None or any(_rewound_to(each) is not None for each in facts):
            folded = 0, History()
        else:
            folded = len(self.facts), known
        return LedgerRecord((*self.hashes, *hashes), (*self.facts, *facts), folded)

    @cached_property
    def counting(self) -> list[bool]:
        """Whether each event still counts; what happened between rounds always does."""
        flags: list[bool] = []
        first = inf  # of the rounds that were superseded later
        for t, event in reversed(self.facts):
            flags.append(t is None or t < first)
            first = min(first, inf if (to := _rewound_to((t, event))) is None else to)
        return flags[::-1]

    @cached_property
    def events(self) -> list[Fact]:
        """What still counts."""
        return [fact for fact, counts in zip(self.facts, self.counting, strict=True) if counts]

    @cached_property
    def history(self) -> History:
        """The whole history."""
        at, known = self._folded
        if at:  # and nothing that came since was superseded
            return with_entries(known, by_round(self.facts[at:]))
        return self._history_of(self.events)

    @cached_property
    def participation(self) -> Participation:
        """Who took part in what."""
        return participation_of(self.events)

    def history_before(self, round_index: int) -> History:
        """Return the history of the rounds before this one."""
        return self._history_of((t, e) for t, e in self.events if t is None or t < round_index)

    def _history_of(self, facts: Iterable[Fact]) -> History:
        judged = zip(self.facts, self.counting, strict=True)
        superseded = (event for (_, event), counts in judged if not counts)
        return history_of(by_round(facts), superseded)

    def latest(self, number: int) -> list["RecentEvents"]:
        """Return the newest events first; several alike that follow each other are one."""

        def alike(i: int) -> tuple[int | None, str, bool]:
            t, event = self.facts[i]
            foreign = isinstance(event, events.ForeignEvent)
            return t, event.kind if foreign else type(event).__name__, self.counting[i]

        runs = islice(groupby(reversed(range(len(self.facts))), key=alike), number)
        return [RecentEvents(next(same) + 1, *key, 1 + sum(1 for _ in same)) for key, same in runs]


def _rewound_to(fact: Fact) -> int | None:
    t, event = fact
    return event.round_index if t is None and isinstance(event, events.RunRolledBack) else None


class RecentEvents(NamedTuple):
    """One of the newest events, or several alike that follow each other.

    Attributes:
        position: of the last of them.
        counts: whether it still counts; False: its round was rolled back.
        number: how many they are.
    """

    position: int
    round_index: int | None
    kind: str
    counts: bool
    number: int = 1


class LedgerReader:
    """Reads one ledger, verified, and later what was added to it."""

    def __init__(self) -> None:
        self._events = EventReader()
        self.last: Link | None = None
        """The end of what was read and verified."""
        self._hashes: list[str] = []
        self._facts: list[Fact] = []
        self._record = LedgerRecord()

    def read(self, ledger: Ledger) -> LedgerRecord:
        """Return what the ledger holds now.

        Raises:
            LedgerError: the chain is broken, or is not the one that was read before.
        """
        for links in ledger.pieces(self.last):
            for link in links:
                self._facts.append((link.round_index, self._events.read(link.record())))
                self._hashes.append(link.hash)
                self.last = link
        known = len(self._record.hashes)
        if known < len(self._hashes):
            self._record = self._record.followed_by(self._hashes[known:], self._facts[known:])
        return self._record
