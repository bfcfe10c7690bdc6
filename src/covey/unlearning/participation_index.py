"""Who was where, found for one client without looking at the others.

Of a ledger with millions of participations, columns stay columns: what is asked of a
client is made of them when it is asked.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, overload

from covey.columns import HandleColumn, HandleMap, Lists, Words
from covey.events import AnonymitySetsFormed
from covey.types import Handle

__all__ = ["AnonymitySet", "FormedSets", "TrainedRounds"]


@dataclass(frozen=True, slots=True)
class AnonymitySet:
    """An anonymity set, as it was formed.

    Attributes:
        near: by member, who is within the largest distance that counts; None: anybody.
        organisations: of the members whose organisation is attested, which one it is among
            those of this set; None: nobody asks, and every member counts.
    """

    round_index: int
    cluster: int
    members: frozenset[Handle]
    diameter: float | None
    near: Mapping[Handle, frozenset[Handle]] | None = None
    organisations: Mapping[Handle, int] | None = None

    def plausible_members(self, leaver: Handle, left: frozenset[Handle]) -> int:
        r"""Count the remaining members to whom the set's update can be attributed.

        |S \ L \ {u}| or, with o(v) the attested organisation of v, as many different ones
        as there are beside the leaver's own: |{o(v) : v in S \ L} \ {o(u)}|.
        """
        others = self.members if self.near is None else self.near[leaver]
        return self.counted(others - left - {leaver}, leaver)

    def counted(self, members: Iterable[Handle], leaver: Handle | None = None) -> int:
        """Count members: those of one organisation are one, the leaver's own is none."""
        known, counted = self.organisations, frozenset(members)
        if known is None:
            return len(counted)
        own = {known.get(leaver)} if leaver is not None else set[int | None]()
        return len({known[each] for each in counted if each in known} - own)


@dataclass(frozen=True, slots=True)
class _Place:
    """A client's place: which list of clients, and where in it."""

    chunk: int
    offset: int


class _Index:
    """Finds a handle in many lists: in columns by number, in others by its text."""

    def __init__(self, chunks: Sequence[Iterable[Handle]]) -> None:
        self._words: Words | None = None
        self._texts: dict[Handle, list[_Place]] = {}
        self._columns: list[int] = []
        columns: list[HandleColumn] = []
        for i, chunk in enumerate(chunks):
            if isinstance(chunk, HandleColumn):
                self._words = chunk.words if self._words is None else self._words
                if chunk.words is self._words:
                    self._columns.append(i)
                    columns.append(chunk)
                    continue
            for offset, handle in enumerate(chunk):
                self._texts.setdefault(handle, []).append(_Place(i, offset))
        self._ends = list(accumulate(map(len, columns)))
        if columns:
            self._sort(columns)

    def _sort(self, columns: Sequence[HandleColumn]) -> None:
        """Put all places in the order of the handles' numbers."""
        import numpy as np  # only a ledger of many clients has columns

        size = 1 + max(max(each.numbers, default=0) for each in columns)
        keys = np.empty(self._ends[-1], dtype=np.uint64)  # of a number, and its place
        begin = 0
        for column, end in zip(columns, self._ends, strict=True):
            numbers = np.asarray(column.numbers, dtype=np.uint64)
            keys[begin:end] = numbers << 32 | np.arange(begin, end, dtype=np.uint64)
            begin = end
        keys.sort()
        self._order: Any = keys.astype(np.uint32)  # the lower half: the place
        firsts = np.arange(size + 1, dtype=np.uint64) << 32
        self._starts: Any = np.searchsorted(keys, firsts)
        if self._words is not None:
            self._words.numbers()  # who asks for the first client waits no longer

    def places(self, handle: Handle) -> list[_Place]:
        """Return where a handle stands, in order."""
        found = self._texts.get(handle, [])
        number = self._words.number_of(handle) if self._words is not None else None
        if number is None or number >= len(self._starts) - 1:
            return found
        among = self._order[self._starts[number] : self._starts[number + 1]].tolist()
        return sorted([*found, *map(self._place, among)], key=lambda at: at.chunk)

    def _place(self, flat: int) -> _Place:
        column = bisect_right(self._ends, flat)
        before = self._ends[column - 1] if column else 0
        return _Place(self._columns[column], flat - before)

    def handles(self) -> Iterator[Handle]:
        """Yield every handle once."""
        yield from self._texts
        if self._words is None:
            return
        known = self._starts[1:] > self._starts[:-1]
        for number in known.nonzero()[0].tolist():
            if (handle := self._words.texts[number]) not in self._texts:
                yield handle


@dataclass(slots=True)
class _Formed:
    """The sets of one cluster in a round, and what was attested of their members."""

    round_index: int
    event: AnonymitySetsFormed
    organisations: dict[int, Sequence[int | None]] = field(
        default_factory=dict[int, Sequence[int | None]]
    )

    def members(self) -> Iterable[Handle]:
        """Return the members of all sets, one set after the other."""
        sets = self.event.sets
        return sets.flat if isinstance(sets, Lists) else chain.from_iterable(sets)

    def ends(self) -> Sequence[int]:
        """Return where each set ends among all members."""
        sets = self.event.sets
        if isinstance(sets, Lists):
            return sets.ends
        return list(accumulate(map(len, sets)))

    def made(self, c: int) -> AnonymitySet:
        """Return the set `c`."""
        event, members = self.event, self.event.sets[c]
        near = None
        if event.near:
            near = dict(zip(members, map(frozenset, event.near[c]), strict=True))
        known = None
        if c in self.organisations:
            found = zip(sorted(members), self.organisations[c], strict=True)
            known = {handle: each for handle, each in found if each is not None}
        return AnonymitySet(
            self.round_index,
            event.cluster,
            frozenset(members),
            event.diameters[c],
            near,
            known,
        )


class FormedSets(Sequence[AnonymitySet]):
    """All anonymity sets of a story, in order."""

    def __init__(self) -> None:
        self._formed: list[_Formed] = []
        self._ends: list[int] = []

    def add(self, round_index: int, event: AnonymitySetsFormed) -> None:
        """Note the sets of one cluster."""
        self._formed.append(_Formed(round_index, event))
        self._ends.append(len(self) + len(event.sets))

    def attest(self, organisations: Sequence[Sequence[int | None]]) -> None:
        """Note the organisations of the sets that were added last, so many."""
        for i, numbers in enumerate(organisations, len(self) - len(organisations)):
            formed, c = self._at(i)
            formed.organisations[c] = numbers

    def of(self, handle: Handle) -> tuple[AnonymitySet, ...]:
        """Return the sets that held this client, oldest first."""
        found: list[AnonymitySet] = []
        for at in self._index.places(handle):
            formed = self._formed[at.chunk]
            found.append(formed.made(bisect_right(formed.ends(), at.offset)))
        return tuple(found)

    @cached_property
    def _index(self) -> _Index:
        return _Index([each.members() for each in self._formed])

    def indexed(self) -> "FormedSets":
        """Return these sets, and answer quickly from now on; nothing more is added."""
        self._index  # noqa: B018 - it is kept
        return self

    def _at(self, index: int) -> tuple[_Formed, int]:
        chunk = bisect_right(self._ends, index)
        return self._formed[chunk], index - (self._ends[chunk - 1] if chunk else 0)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[AnonymitySet]:
        for formed in self._formed:
            yield from map(formed.made, range(len(formed.event.sets)))

    @overload
    def __getitem__(self, index: int) -> AnonymitySet: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnonymitySet]: ...
    def __getitem__(self, index: int | slice) -> AnonymitySet | Sequence[AnonymitySet]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return tuple(self[i] for i in places)
        formed, c = self._at(places)
        return formed.made(c)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormedSets | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - sets can still be added


class TrainedRounds(Mapping[Handle, Mapping[int, int]]):
    """By client, the rounds it trained in, and the cluster it trained."""

    def __init__(self, chosen: Sequence[tuple[int, Mapping[Handle, int]]] = ()) -> None:
        """Index choices.

        Args:
            chosen: rounds, and which cluster each client took in it.
        """
        self._chosen = chosen
        self._index = _Index(
            [c.handles if isinstance(c, HandleMap) else c for _, c in chosen]
        )

    def __getitem__(self, handle: Handle) -> Mapping[int, int]:
        places = self._index.places(handle)
        if not places:
            raise KeyError(handle)
        found = (self._chosen[at.chunk] for at in places)
        return {t: clusters[handle] for t, clusters in found}

    def __iter__(self) -> Iterator[Handle]:
        return self._index.handles()

    def __len__(self) -> int:
        return sum(1 for _ in self)
