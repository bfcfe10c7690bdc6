"""What a run told, in order: a story that grows by a round without being copied.

A run of many rounds tells many events, and next to nobody asks for the old ones. They are
kept as compressed JSON, in pieces, and read again by who does.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import TypeVar, cast, overload

from covey.columns import is_column
from covey.events import Event, ForeignEvent, event_from, kind_and_body

__all__ = ["PIECE", "Told", "ToldEvents", "of_kinds"]

T = TypeVar("T")
E = TypeVar("E", bound=Event)

PIECE = 256
"""Events that are packed together; as many again may wait for it."""


class _Story(Sequence[T]):
    """A sequence that equals another one, and a tuple, of the same content."""

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self._at(places)
        return tuple(self._at(i) for i in places)

    def _at(self, place: int) -> T:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Story | tuple):
            return False
        return tuple(self) == tuple(cast("Sequence[object]", other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({tuple(self)!r})"


class Told(_Story[T]):
    """What was told, in order; one that is longer shares with it what both tell.

    So that a story can be told after every round, and all of it is not copied for that.
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def with_more(self, items: Iterable[T]) -> "Told[T]":
        """Return these and more."""
        longer = Told[T]()
        whole = len(self._items) == self._length
        longer._items = self._items if whole else self._items[: self._length]
        longer._items.extend(items)
        longer._length = len(longer._items)
        return longer

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def _at(self, place: int) -> T:
        return self._items[place]


class ToldEvents(_Story[Event]):
    """The same of events, of which all but the newest are packed."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._kept = _Kept()
        self._kept.extend(events)
        self._length = len(self._kept)

    def with_more(self, events: Iterable[Event]) -> "ToldEvents":
        """Return these and more."""
        if self._length < len(self._kept):  # another story went on from here
            return ToldEvents(self).with_more(events)
        longer = ToldEvents()
        longer._kept = self._kept
        longer._kept.extend(events)
        longer._length = len(longer._kept)
        return longer

    def of(self, *kinds: type[E]) -> Iterator[E]:
        """Yield the events of these kinds; others are not made again for that."""
        return _before(self._kept.of(kinds), self._length)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Event]:
        return self.of(Event)

    def _at(self, place: int) -> Event:
        return self._kept.at(place)


def of_kinds(told: Sequence[Event], *kinds: type[E]) -> Iterator[E]:
    """Yield the events of these kinds, in order."""
    if isinstance(told, ToldEvents):
        return told.of(*kinds)
    return (each for each in told if isinstance(each, kinds))


def _before(numbered: Iterable[tuple[int, T]], stop: int) -> Iterator[T]:
    """Yield what has a place before `stop`."""
    for place, each in numbered:
        if place >= stop:
            return
        yield each


@dataclass(frozen=True, slots=True)
class _Piece:
    """`PIECE` events: as compressed JSON, but for those of columns, which stay.

    Attributes:
        kinds: whose events are in it.
    """

    packed: bytes
    columns: dict[int, Event]
    kinds: frozenset[type[Event]]

    @classmethod
    def of(cls, events: Sequence[Event]) -> "_Piece":
        columns = {i: each for i, each in enumerate(events) if _has_columns(each)}
        rest = [
            None if i in columns else kind_and_body(each)
            for i, each in enumerate(events)
        ]
        text = json.dumps(rest, separators=(",", ":")).encode()
        return cls(zlib.compress(text), columns, frozenset(map(type, events)))

    def events(self, kinds: tuple[type[E], ...]) -> Iterator[tuple[int, E]]:
        """Yield the events of these kinds, each with its place among all."""
        wanted = {each.__name__ for each in self.kinds if issubclass(each, kinds)}
        foreign = issubclass(ForeignEvent, kinds)  # they are called by other names
        for i, found in enumerate(json.loads(zlib.decompress(self.packed))):
            if found is None:
                event = self.columns[i]
                if isinstance(event, kinds):
                    yield i, event
            elif foreign or found[0] in wanted:
                event = event_from(*found)
                if isinstance(event, kinds):
                    yield i, event


class _Kept:
    """Events that stories of different lengths share; it only grows.

    Who reads it may be another thread than who adds to it.
    """

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._newest: tuple[int, list[Event]] = 0, []
        """How many pieces come before these events, and they."""
        self._read: tuple[int, list[Event]] = -1, []
        """The piece that was last read event by event."""

    def __len__(self) -> int:
        before, newest = self._newest
        return before * PIECE + len(newest)

    def extend(self, events: Iterable[Event]) -> None:
        for each in events:
            before, newest = self._newest
            newest.append(each)
            if len(newest) == 2 * PIECE:
                self._pieces.append(_Piece.of(newest[:PIECE]))
                self._newest = before + 1, newest[PIECE:]

    def at(self, place: int) -> Event:
        before, newest = self._newest
        number, offset = divmod(place, PIECE)
        if number >= before:
            return newest[place - before * PIECE]
        known, events = self._read
        if known != number:
            events = [each for _, each in self._pieces[number].events((Event,))]
            self._read = number, events
        return events[offset]

    def of(self, kinds: tuple[type[E], ...]) -> Iterator[tuple[int, E]]:
        before, newest = self._newest
        for number, piece in enumerate(islice(self._pieces, before)):
            if any(issubclass(each, kinds) for each in piece.kinds):
                for offset, event in piece.events(kinds):
                    yield number * PIECE + offset, event
        for place, event in enumerate(newest, before * PIECE):
            if isinstance(event, kinds):
                yield place, event


def _has_columns(event: Event) -> bool:
    return any(is_column(getattr(event, each.name)) for each in fields(event))
