"""What a ledger holds, verified and read once, also while it grows."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from math import inf
from operator import itemgetter
from typing import NamedTuple

from covey.base import events
from covey.base.events import Event, kind_and_body
from covey.base.history import History, history_of, with_entries
from covey.ledger.chain import GENESIS, Link, Record, verify
from covey.ledger.participation import Participation, participation_of
from covey.ledger.store import Ledger
from covey.runs.grammar import Grammar
from covey.runs.round_grammar import RoundTerms

RecordedEvent = tuple[int | None, Event]
"""An event with its round; None: it happened between two."""

RoundEntry = tuple[int | None, list[Event]]
"""What was recorded at once: of one round, or between two (None)."""


def records_of(events: Iterable[Event], round_index: int | None = None) -> list[Record]:
    """Return events as a ledger records them: of a round or, None, between two."""
    return [Record(round_index, *kind_and_body(event)) for event in events]


def _by_round(facts: Iterable[RecordedEvent]) -> Iterator[RoundEntry]:
    """Group facts that follow each other in one round, or between two."""
    for t, entry in groupby(facts, key=itemgetter(0)):
        yield t, [event for _, event in entry]


@dataclass(frozen=True, eq=False)
class LedgerRecord:
    """All that was in a ledger when it was read, and what follows from it.

    Attributes:
        hashes: of every event, in order.
        facts: every event, those of superseded rounds too.
    """

    hashes: Sequence[str] = ()
    facts: Sequence[RecordedEvent] = ()
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

    def followed_by(self, hashes: Sequence[str], facts: Sequence[RecordedEvent]) -> "LedgerRecord":
        """Return what is in a ledger to which these were added."""
        known = vars(self).get("history")
        if known is None or any(_rewound_to(fact) is not None for fact in facts):
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
    def events(self) -> list[RecordedEvent]:
        """What still counts."""
        return [fact for fact, counts in zip(self.facts, self.counting, strict=True) if counts]

    @cached_property
    def history(self) -> History:
        """The whole history."""
        at, known = self._folded
        if at:  # and nothing that came since was superseded
            return with_entries(known, _by_round(self.facts[at:]))
        return self._history_of(self.events)

    @cached_property
    def participation(self) -> Participation:
        """Who took part in what."""
        return participation_of(self.events)

    @property
    def next_round(self) -> int:
        """The first round that is not recorded; after a run's end, one more than it has."""
        for t, event in reversed(self.facts):
            if t is not None:
                return t + 1
            if (first := _rewound_to((t, event))) is not None:
                return first
        return 0

    def head_of(self, round_index: int) -> str | None:
        """Return the hash of the last event that still counts of one round."""
        for fact, digest in zip(reversed(self.facts), reversed(self.hashes), strict=True):
            if fact[0] == round_index:
                return digest
            first = _rewound_to(fact)
            if first is not None and first <= round_index:
                return None
        return None

    def history_before(self, round_index: int) -> History:
        """Return the history of the rounds before this one."""
        if round_index >= self.next_round:
            return self.history
        return self._history_of((t, e) for t, e in self.events if t is None or t < round_index)

    def _history_of(self, facts: Iterable[RecordedEvent]) -> History:
        judged = zip(self.facts, self.counting, strict=True)
        superseded = (event for (_, event), counts in judged if not counts)
        return history_of(_by_round(facts), superseded)

    def latest(self, number: int) -> list["RecentEvents"]:
        """Return the newest events first; several alike that follow each other are one."""

        def alike(i: int) -> tuple[int | None, str, bool]:
            t, event = self.facts[i]
            foreign = isinstance(event, events.ForeignEvent)
            return t, event.kind if foreign else type(event).__name__, self.counting[i]

        runs = islice(groupby(reversed(range(len(self.facts))), key=alike), number)
        return [RecentEvents(next(same) + 1, *key, 1 + sum(1 for _ in same)) for key, same in runs]


def _rewound_to(fact: RecordedEvent) -> int | None:
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
        self._grammar = Grammar()
        self.last: Link | None = None
        """The end of what was read and verified."""
        self._hashes: list[str] = []
        self._facts: list[RecordedEvent] = []
        self._record = LedgerRecord()

    def compare_with(self, terms: RoundTerms) -> None:
        """Compare what is read, from its first event on, with what settings say.

        Raises:
            LedgerError: what was read before cannot stand in a run of these settings.
        """
        known = self._grammar.terms
        if known is None or known.started != terms.started:
            judged, position = Grammar(terms), 0
            for t, entry in _by_round(self._facts):
                records = records_of(entry, t)
                judged.read(replace(r, position=position + i) for i, r in enumerate(records, 1))
                position += len(records)
            self._grammar = judged

    def read(self, ledger: Ledger) -> LedgerRecord:
        """Return what the ledger holds now.

        Raises:
            LedgerError: the chain is broken, is not the one that was read before, or holds
                what the grammar refuses.
        """
        for links in ledger.pieces(self.last):
            self._add(links)
        return self.record

    @property
    def record(self) -> LedgerRecord:
        """What was read.

        Raises:
            LedgerError: an answer is recorded without the roll-back that it needs.
        """
        self._grammar.check_whole(len(self._hashes))
        known = len(self._record.hashes)
        if known < len(self._hashes):
            self._record = self._record.followed_by(self._hashes[known:], self._facts[known:])
        return self._record

    def add_written(self, links: Sequence[Link]) -> None:
        """Add what was just written after all that was read.

        Raises:
            LedgerError: something else was written in between.
        """
        verify(links, self.last)
        self._add(links)

    def _add(self, links: Sequence[Link]) -> None:
        facts = self._grammar.read([link.record() for link in links])
        self._facts += zip((link.round_index for link in links), facts, strict=True)
        self._hashes += [link.hash for link in links]
        self.last = links[-1] if links else self.last

    def following(self, facts: Iterable[Event], round_index: int | None = None) -> list[Record]:
        """Return events as they may be recorded next: of a round or, None, between two.

        Raises:
            LedgerError: the grammar refuses them.
        """
        records = records_of(facts, round_index)
        after = copy(self._grammar)
        after.read(records)
        after.check_whole(len(self._hashes) + len(records))
        return records
