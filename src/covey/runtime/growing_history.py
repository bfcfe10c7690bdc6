"""The story of a run that goes on, folded as its ledger grows: each record is read once."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from covey.columns import HandleColumn, HandleMap
from covey.events import ClientsAssigned, CohortSampled, Event
from covey.history import History, history_of, with_entry
from covey.ledger import GENESIS, REWIND, Ledger, Link
from covey.ledger.rollback import superseded_up_to
from covey.ledger.tail import MOST_BYTES
from covey.runtime.recorded_events import StoryReader, event_of
from covey.told import ToldEvents
from covey.types import Handle

__all__ = ["BULKY", "GrowingHistory", "Noted", "glance"]

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
