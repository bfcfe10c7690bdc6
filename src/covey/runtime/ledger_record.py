"""What a ledger holds, verified and read once, also while it grows.

A chain that holds proves only that nothing was changed since it was sealed. Who can seal it
can put anything there; so each event is also compared with what was recorded before it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

from covey.base import events
from covey.base.events import Event, event_from, kind_and_body
from covey.base.history import History, HistoryFold, history_of
from covey.base.names import Handle
from covey.ledger.chain import (
    GENESIS,
    REWIND,
    Link,
    Record,
    counts,
    current_records,
    no_event,
    superseded,
)
from covey.ledger.store import MOST_BYTES, Ledger
from covey.unlearning.participation import Participation, participation_of
from covey.unlearning.plan import AnswerRules, ClientPlan, WantedAnswer, choose_answers


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
        if t is None and isinstance(event, events.RunStarted | events.CohortSampled):
            problem = f"a {type(event).__name__} belongs to a round"
        if problem or self._began is None:
            return problem
        match event:
            case events.RunRolledBack(round_index=first):
                self._round, self._in_round = min(self._round, first - 1), set()
            case events.RunStarted(groups=found):
                self._known.update(found)
            case events.ClientsJoined(handles=handles):
                self._known.update(handles)
            case _:
                pass
        return self._out_of_range(t, event)

    def _out_of_order(self, t: int, event: Event) -> str:
        """Say why an event cannot be of this round; "": it can."""
        kind, before = type(event), self._round
        if t != before:
            self._round, self._in_round = t, set()
        twice = kind in self._in_round and kind in (events.RunStarted, events.CohortSampled)
        self._in_round.add(kind)
        if kind is events.RunStarted and t == 0:
            self._began = cast("events.RunStarted", event)
        began = self._began
        reasons = (
            (t < before, f"it is of round {t}, and round {before} came before"),
            (twice, f"its round has another {kind.__name__}"),
            (kind is events.RunStarted and t > 0, f"a run starts in round 0, not in {t}"),
            (began is None, "no start of the run comes before it"),
            (began and t > began.rounds, f"its run has no round {t}"),
            (
                kind is events.ClientsAssigned
                and events.CohortSampled not in self._in_round
                and cast("events.ClientsAssigned", event).by != "final",
                "no cohort was drawn in its round before it",
            ),
        )
        return next((reason for holds, reason in reasons if holds), "")

    def _out_of_range(self, t: int | None, event: Event) -> str:
        count = self._began.num_clusters if self._began else 0
        last = max(_clusters(event), default=0)
        if not 0 <= last < count:
            return f"it names cluster {last}, and there are 0 to {count - 1}"
        if t is None and not isinstance(event, events.ClientLeft):
            return ""  # who joins chooses first
        handles = tuple(_handles(event))
        strange = next((h for h in handles if h not in self._known), None)
        if strange is not None:
            return f"it names a client that never joined: {strange!a}"
        if isinstance(event, events.CohortSampled) and len(set(handles)) < len(handles):
            return "it names a client twice"
        return ""


def _clusters(event: Event) -> Iterable[int]:
    """Return the clusters that an event names."""
    if isinstance(event, events.ClientsAssigned):
        return event.clusters.values()
    found: Any = getattr(event, "cluster", None)
    if isinstance(found, int):
        return (found,)
    several: Any = getattr(event, "clusters", ())
    return cast("Iterable[int]", several)


def _handles(event: Event) -> Iterator[Handle]:
    """Yield the clients that an event names."""
    for name in ("handle", "risk_thresholds", "groups", "steps", "weights", "accuracy"):
        found: Any = getattr(event, name, None)
        if isinstance(found, str):
            yield found
        elif isinstance(found, Mapping):
            yield from cast("Mapping[Handle, object]", found)
    if isinstance(event, events.ClientsAssigned):
        yield from event.clusters
    if isinstance(event, events.AnonymitySetsFormed):
        yield from chain.from_iterable(event.sets)
    if isinstance(event, events.MovesWaited | events.SumGivenUp):
        yield from event.clients
    handles: Any = getattr(event, "handles", ())
    yield from handles


Entry = tuple[int | None, list[Event]]
"""What was recorded at once: of one round, or between two (None)."""


@dataclass(frozen=True, eq=False)
class LedgerRecord:
    """All that was in a ledger when it was read, and what follows from it.

    Attributes:
        hashes: of every record, in order.
        records: everything that was recorded, superseded rounds included.
        last: the end of the chain.
    """

    hashes: Sequence[str]
    records: list[Record]
    last: Link | None = None
    _reader: EventReader = field(default_factory=EventReader, repr=False)
    _events: list[Event] = field(default_factory=list[Event], repr=False)
    _answers: dict[tuple[tuple[WantedAnswer, ...], AnswerRules], tuple[ClientPlan, ...]] = field(
        default_factory=dict, repr=False
    )

    @property
    def head(self) -> str:
        """The hash that seals all of it."""
        return self.hashes[-1] if self.hashes else GENESIS

    @cached_property
    def entries(self) -> list[Entry]:
        """What still counts."""
        return self.current(self.records)

    def current(self, records: Sequence[Record]) -> list[Entry]:
        """Return what still counted when these of its records were all, entry by entry."""
        return by_entry(current_records(records), self._event)

    @cached_property
    def events(self) -> list[tuple[int | None, Event]]:
        """What still counts, each event with its round."""
        return [(t, event) for t, events in self.entries for event in events]

    @cached_property
    def history(self) -> History:
        """The whole history."""
        return self._folded(self.entries)

    @cached_property
    def participation(self) -> Participation:
        """Who took part in what."""
        return participation_of(self.events)

    def history_before(self, round_index: int) -> History:
        """Return the history of the rounds before this one."""
        entries = self.entries
        return self._folded([(t, e) for t, e in entries if t is None or t < round_index])

    def answers(self, wanted: Sequence[WantedAnswer], rules: AnswerRules) -> tuple[ClientPlan, ...]:
        """Return what these clients are answered if all leave at once; planned once."""
        key = tuple(wanted), rules
        if key not in self._answers:
            self._answers[key] = choose_answers(self.participation, *key)
        return self._answers[key]

    def with_links(self, links: Sequence[Link]) -> "LedgerRecord":
        """Return what is in a ledger to which these were added."""
        return LedgerRecord(
            (*self.hashes, *(each.hash for each in links)),
            [*self.records, *(each.record() for each in links)],
            links[-1] if links else self.last,
            self._reader,
            self._events,
        )

    def _folded(self, entries: Sequence[Entry]) -> History:
        return history_of(entries, map(self._event, superseded(self.records)))

    def _event(self, record: Record) -> Event:
        """Return a record's event; all of them are read once, in order, as far as asked."""
        assert record.position is not None  # what was read of a ledger has one  # noqa: S101
        for each in self.records[len(self._events) : record.position]:
            self._events.append(self._reader.read(each))
        return self._events[record.position - 1]


class RecordReader:
    """Reads one ledger, and again only once something was added to it.

    Its head commits to all that it holds: while that is the same, so is the rest.
    """

    def __init__(self) -> None:
        self._latest: LedgerRecord | None = None

    def read(self, ledger: Ledger) -> LedgerRecord:
        """Return what the ledger holds now.

        Raises:
            LedgerError: its chain is broken.
        """
        latest = self._latest
        if latest is None or latest.head != ledger.head():
            known = latest or LedgerRecord((), [])
            links = ledger.links(known.last)
            if not links or links[0].position <= len(known.hashes):  # another ledger's
                known = LedgerRecord((), [])
            self._latest = latest = known.with_links(links)
        return latest


def by_entry(records: Sequence[Record], read: Callable[[Record], Event] = event_of) -> list[Entry]:
    """Group records that follow each other in one round, or between two."""
    entries: list[Entry] = []
    for record in records:
        if not entries or entries[-1][0] != record.round_index:
            entries.append((record.round_index, []))
        entries[-1][1].append(read(record))
    return entries


BULKY = frozenset(
    {
        "AnonymitySetsFormed",
        "ChoicesPerturbed",
        "ClientsAssigned",
        "ClientsHandedOut",
        "CohortSampled",
        "OrganisationsAttested",
        "StepsPerturbed",
    }
)
"""Kinds that name a round's clients one by one: most of a large ledger's bytes."""

LATEST = 24


class Noted(NamedTuple):
    """One of the newest records, or several alike that follow each other.

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


class LedgerFollower:
    """Folds one ledger, piece by piece; a rewind makes it begin again."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """Begin with nothing.

        Args:
            most_bytes: of events that are read at once.
        """
        self._most_bytes = most_bytes
        self._begin(())

    def _begin(self, rewinds: Sequence[tuple[int, int]]) -> None:
        self._fold, self._events = HistoryFold(), EventReader()
        self._last: Link | None = None
        self._rewinds = rewinds
        self._gone: list[Event] = []
        self._open: Entry = (None, [])
        self.latest: deque[Noted] = deque(maxlen=LATEST)

    @property
    def position(self) -> int:
        """The last position that was read and verified."""
        return self._last.position if self._last else 0

    @property
    def head(self) -> str:
        """The hash that seals all that was read."""
        return self._last.hash if self._last else GENESIS

    @property
    def history(self) -> History:
        """The history of all entries that were read to their end."""
        history = self._fold.history()
        return replace(history, told=(*self._gone, *history.told))

    def read_more(self, ledger: Ledger) -> bool:
        """Fold the next piece; return whether there is more to read now.

        Raises:
            LedgerError: the chain is broken, or is not the one that was read before.
        """
        if self._last is None:
            self._begin(ledger.rewinds())
        links, is_last, _ = ledger.piece(self._last, self._most_bytes)
        known = {at for at, _ in self._rewinds}
        for link in links:
            is_rewind = link.round_index is None and link.kind == REWIND
            if is_rewind and link.position not in known:  # of rounds that were folded
                self._begin(ledger.rewinds())
                return True
            self._take(link)
        if is_last:
            self._close_entry()
        return not is_last

    def _take(self, link: Link) -> None:
        t, event = link.round_index, self._events.read(link.record())
        still = counts(self._rewinds, link.position, t)
        if still:
            if t != self._open[0]:
                self._close_entry()
                self._open = (t, [])
            self._open[1].append(event)
        else:
            self._gone.append(event)
        self._last = link
        number = 1
        if self.latest and self.latest[-1][1:4] == (t, link.kind, still):
            number += self.latest.pop().number
        self.latest.append(Noted(link.position, t, link.kind, still, number))

    def _close_entry(self) -> None:
        if self._open[1]:
            self._fold.add(*self._open)
        self._open = (None, [])


def glance(ledger: Ledger) -> History:
    """Fold what does not name a round's clients one by one; nothing is verified.

    Of a large ledger this takes a small part of the time. Who is in which cluster, moves,
    anonymity sets and what noise guarantees are not in it.

    Raises:
        LedgerError: it cannot be read, or a record is damaged.
    """
    return history_of(by_entry([link.record() for link in ledger.without(BULKY)]))
