"""What a ledger holds, verified and read once for everybody who asks, also while it grows.

Events as they are read from a ledger: what cannot be one is told with its position.

A chain that holds proves only that nothing was changed since it was sealed. Who can seal it
can put anything there; so each event is also compared with what was recorded before it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

from covey.base.columns import HandleColumn, HandleMap
from covey.base.events import (
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
from covey.base.history import History, ToldEvents, history_of, with_entry
from covey.base.names import Handle
from covey.ledger.chain import (
    GENESIS,
    REWIND,
    Link,
    Record,
    current_records,
    no_event,
    superseded,
    superseded_up_to,
)
from covey.ledger.store import MOST_BYTES, Ledger
from covey.unlearning.participation import Participation, participation_of
from covey.unlearning.plan import AnswerChoice, AnswerRules, WantedAnswer, choose_answers


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
    for name in ("handle", "risk_thresholds", "groups", "steps", "weights", "accuracy"):
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


Entry = tuple[int | None, list[Event]]
"""What was recorded at once: of one round, or between two (None)."""


@dataclass(frozen=True, eq=False)
class LedgerRecord:
    """All that stood in a ledger when it was read, and what follows from it.

    Attributes:
        hashes: of every record, in order.
        records: everything that was recorded, superseded rounds included.
        last: the end of the chain.
    """

    hashes: Sequence[str]
    records: list[Record]
    last: Link | None = None
    _read: "_Read" = field(default_factory=lambda: _Read(), repr=False)
    _answers: dict[tuple[tuple[WantedAnswer, ...], AnswerRules], tuple[AnswerChoice, ...]] = field(
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
        """The whole story."""
        return self._folded(self.entries)

    @cached_property
    def participation(self) -> Participation:
        """Who took part in what."""
        return participation_of(self.events)

    def history_before(self, round_index: int) -> History:
        """Return the story of the rounds before this one."""
        entries = self.entries
        return self._folded([(t, e) for t, e in entries if t is None or t < round_index])

    def answers(
        self, wanted: Sequence[WantedAnswer], rules: AnswerRules
    ) -> tuple[AnswerChoice, ...]:
        """Return what these clients are answered if all leave at once; planned once."""
        key = tuple(wanted), rules
        if key not in self._answers:
            self._answers[key] = choose_answers(self.participation, *key)
        return self._answers[key]

    def _folded(self, entries: Sequence[Entry]) -> History:
        gone = superseded(self.records)
        return history_of(entries, [self._event(each) for each in gone])

    def _event(self, record: Record) -> Event:
        """Return one of its records as an event, read once: no other record is the same."""
        return self._read.event(self.records, record)

    def with_links(self, links: list[Link]) -> "LedgerRecord":
        """Return what stands in a ledger to which these were added.

        The list is empty afterwards: many links and what they say need much memory.
        """
        hashes = (*self.hashes, *(each.hash for each in links))
        last = links[-1] if links else self.last
        links.reverse()
        records = list(self.records)
        while links:
            records.append(links.pop().record())
        return LedgerRecord(hashes, records, last, self._read)


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


class _Read:
    """The events of records that only grow in number, each read once and in order."""

    def __init__(self) -> None:
        self._story = StoryReader()
        self._events: dict[int, Event] = {}

    def event(self, records: Sequence[Record], wanted: Record) -> Event:
        known = self._events
        while id(wanted) not in known and len(known) < len(records):
            one = records[len(known)]
            known[id(one)] = self._story.read(one)
        return known[id(wanted)]


def by_entry(records: Sequence[Record], read: Callable[[Record], Event] = event_of) -> list[Entry]:
    """Group records that follow each other in one round, or between two."""
    entries: list[Entry] = []
    for record in records:
        if not entries or entries[-1][0] != record.round_index:
            entries.append((record.round_index, []))
        entries[-1][1].append(read(record))
    return entries


BULKY = (
    "AnonymitySetsFormed",
    "ChoicesPerturbed",
    "ClientsAssigned",
    "ClientsHandedOut",
    "CohortSampled",
    "OrganisationsAttested",
    "StepsPerturbed",
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


class GrowingHistory:
    """Folds one ledger, piece by piece; a rewind makes it begin again."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """Begin with nothing.

        Args:
            most_bytes: of events that are read at once.
        """
        self._most_bytes = most_bytes
        self._begin(())

    def _begin(self, rewinds: Iterable[tuple[int, int]]) -> None:
        self._history = History()
        self._last: Link | None = None
        self._story = StoryReader()
        self._rewinds = tuple(rewinds)
        self._gone: list[Event] = []
        self._open: list[Event] = []
        self._round: int | None = None
        self._interned: dict[Handle, Handle] = {}
        self._cohort: CohortSampled | None = None
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
        """The story of all entries that were read to their end."""
        if not self._gone:
            return self._history
        told = ToldEvents(self._gone).with_more(self._history.told)
        return replace(self._history, told=told)

    def read_more(self, ledger: Ledger) -> bool:
        """Fold the next piece; return whether there is more to read now.

        Raises:
            LedgerError: the chain is broken, or is not the one that was read before.
        """
        if self._last is None:
            self._begin(ledger.tail.rewinds())
        piece = ledger.tail.after(self._last, self._most_bytes)
        for link in piece.links:
            if self._is_news(link):
                self._begin(ledger.tail.rewinds())
                return True
            self._take(link)
        if piece.is_last:
            self._close_entry()
        return not piece.is_last

    def _is_news(self, link: Link) -> bool:
        """Say whether a link rewinds rounds that were folded as if they counted."""
        if link.round_index is not None or link.kind != REWIND:
            return False
        return link.position not in {at for at, _ in self._rewinds}

    def _take(self, link: Link) -> None:
        record, t = link.record(), link.round_index
        event = self._lean(self._story.read(record))
        counts = t is None or link.position > superseded_up_to(self._rewinds, t)
        if not counts:
            self._gone.append(event)
        else:
            if self._open and t != self._round:
                self._close_entry()
            self._round = t
            self._open.append(event)
        self._last = link
        self._note(Noted(link.position, t, link.kind, counts))

    def _note(self, noted: Noted) -> None:
        before = self.latest[-1] if self.latest else None
        if before is not None and before[1:4] == noted[1:4]:
            noted = noted._replace(number=self.latest.pop().number + 1)
        self.latest.append(noted)

    def _close_entry(self) -> None:
        if self._open:
            self._history = with_entry(self._history, self._round, self._open)
            self._open = []

    def _lean(self, event: Event) -> Event:
        """Return an equal event that shares its handles with those before."""
        known = self._interned
        if isinstance(event, CohortSampled) and isinstance(event.handles, HandleColumn):
            return event
        if isinstance(event, ClientsAssigned) and isinstance(event.clusters, HandleMap):
            return event
        if isinstance(event, CohortSampled):
            handles = tuple(known.setdefault(h, h) for h in event.handles)
            if self._cohort is None or handles != self._cohort.handles:
                self._cohort = CohortSampled(handles)
            return self._cohort
        if isinstance(event, ClientsAssigned):
            clusters = {known.setdefault(h, h): j for h, j in event.clusters.items()}
            return ClientsAssigned(clusters, event.by)
        return event


def glance(ledger: Ledger) -> History:
    """Fold what is told without naming a round's clients one by one; nothing is verified.

    Of a large ledger this takes a small part of the time. Who is in which cluster, moves,
    anonymity sets and what noise guarantees are not in it.

    Raises:
        LedgerError: it cannot be read.
        ValueError: a record is damaged.
    """
    rewinds = ledger.tail.rewinds()
    entries: list[tuple[int | None, list[Event]]] = []
    for position, record in ledger.tail.without(BULKY):
        t = record.round_index
        if t is not None and position <= superseded_up_to(rewinds, t):
            continue
        if not entries or entries[-1][0] != t:
            entries.append((t, []))
        entries[-1][1].append(event_of(record))
    return history_of(entries)
