"""What a ledger holds, verified and read once for everybody who asks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from covey.events import Event
from covey.history import History, history_of
from covey.ledger import (
    GENESIS,
    Ledger,
    Link,
    Record,
    current_records,
    superseded,
)
from covey.runtime.recorded_events import StoryReader, event_of
from covey.unlearning import (
    AnswerChoice,
    AnswerRules,
    Participation,
    WantedAnswer,
    choose_answers,
    participation_of,
)

__all__ = ["Entry", "LedgerRecord", "RecordReader", "by_entry"]

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
    _answers: dict[
        tuple[tuple[WantedAnswer, ...], AnswerRules], tuple[AnswerChoice, ...]
    ] = field(default_factory=dict, repr=False)

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
        return self._folded(
            [(t, e) for t, e in entries if t is None or t < round_index]
        )

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


def by_entry(
    records: Sequence[Record], read: Callable[[Record], Event] = event_of
) -> list[Entry]:
    """Group records that follow each other in one round, or between two."""
    entries: list[Entry] = []
    for record in records:
        if not entries or entries[-1][0] != record.round_index:
            entries.append((record.round_index, []))
        entries[-1][1].append(read(record))
    return entries
