"""Columns: many clients' handles and numbers, as a few bytes each.

A handle is text once, in a table of `Words`; a column holds its number there. Columns are
values: they equal the tuples and mappings of the same content, and change as little.
"""

from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, Generic, TypeVar, cast, overload

T = TypeVar("T")


class Words:
    """Texts with a number each, from 0 in order of coming; none is ever taken away."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts: list[str] = []
        self.are_plain = True
        """Whether JSON has them as they are, within quotes."""
        self._numbers: dict[str, int] = {}
        self.add(texts)

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, texts: Iterable[str]) -> None:
        """Give new texts the next numbers."""
        new = list(texts)
        joined = "".join(new)
        self.are_plain &= encode_basestring_ascii(joined) == f'"{joined}"'
        self.texts += new

    def number_of(self, text: str) -> int | None:
        """Return the number of a text; None: it has none."""
        return self.numbers().get(text)

    def numbers(self) -> Mapping[str, int]:
        """Return every text's number."""
        known = len(self._numbers)
        if known < len(self.texts):
            more = self.texts[known:] if known else self.texts
            self._numbers.update(zip(more, range(known, len(self.texts)), strict=True))
        return self._numbers


class _Values(Sequence[T]):
    """What equals a tuple or list of the same content."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Values | tuple | list):
            return NotImplemented
        others = cast("Sequence[object]", other)
        return len(self) == len(others) and all(map(_are_equal, self, others))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"

    def __deepcopy__(self, _: object) -> "_Values[T]":
        return self  # nothing changes it


def _are_equal(one: object, other: object) -> bool:
    """Compare two cells; JSON knows no difference between a list and a tuple."""
    pair = (one, other)
    if all(isinstance(each, tuple | list) for each in pair):
        a, b = cast("tuple[Sequence[object], Sequence[object]]", pair)
        return len(a) == len(b) and all(map(_are_equal, a, b))
    return one == other


class Column(_Values[T]):
    """Numbers, or other values."""

    __slots__ = ("cells",)

    def __init__(self, cells: Sequence[T]) -> None:
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[T]:
        return iter(self.cells)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        found = self.cells[index]
        return found if isinstance(index, int) else tuple(cast("Sequence[T]", found))


class HandleColumn(_Values[str]):
    """Handles, each as its number among `words`."""

    __slots__ = ("numbers", "words")

    def __init__(self, words: Words, numbers: "array[int]") -> None:
        self.words = words
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return map(self.words.texts.__getitem__, self.numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, int):
            return self.words.texts[self.numbers[index]]
        return tuple(map(self.words.texts.__getitem__, self.numbers[index]))


class Lists(_Values[tuple[T, ...]]):
    """Lists of different lengths, one after the other in a column."""

    __slots__ = ("ends", "flat")

    def __init__(self, ends: "array[int]", flat: Sequence[T]) -> None:
        """Cut a column.

        Args:
            ends: where each list ends; they never fall, and the last is the whole length.
            flat: what the lists hold.
        """
        self.ends = ends
        self.flat = flat

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[tuple[T, ...]]:
        flat = tuple(self.flat)
        return (flat[a:b] for a, b in pairwise((0, *self.ends)))

    @overload
    def __getitem__(self, index: int) -> tuple[T, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[T, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[T, ...] | Sequence[tuple[T, ...]]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        place = range(len(self))[index]
        begin = self.ends[place - 1] if place else 0
        return tuple(self.flat[begin : self.ends[place]])


class HandleMap(Mapping[str, T], Generic[T]):
    """A value for each of many handles, which stand in their own order."""

    __slots__ = ("cells", "handles")

    def __init__(self, handles: HandleColumn, values: Sequence[T]) -> None:
        self.handles = handles
        self.cells = values

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[str]:
        return iter(self.handles)

    def __getitem__(self, key: str) -> T:
        place = bisect_left(self.handles, key)
        if place < len(self) and self.handles[place] == key:
            return self.cells[place]
        raise KeyError(key)

    def items(self) -> ItemsView[str, T]:
        """Return the pairs, without looking each of them up."""
        return _Items(self)

    def values(self) -> ValuesView[T]:
        """Return the values, in the handles' order."""
        return _MapValues(self)

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def __repr__(self) -> str:
        return f"HandleMap({dict(self.items())!r})"

    def __deepcopy__(self, _: object) -> "HandleMap[T]":
        return self  # nothing changes it


class _Items(ItemsView[str, T]):
    _mapping: HandleMap[T]

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return zip(self._mapping.handles, self._mapping.cells, strict=True)


class _MapValues(ValuesView[T]):
    _mapping: HandleMap[T]

    def __iter__(self) -> Iterator[T]:
        return iter(self._mapping.cells)


def as_plain(value: object) -> Any:  # noqa: ANN401 - JSON's values
    """Return a column as the list or dict that it stands for, and the rest as it is."""
    match value:
        case HandleMap():
            return dict(cast("HandleMap[object]", value).items())
        case _Values():
            return list(cast("_Values[object]", value))
        case _:
            return value


def is_column(value: object) -> bool:
    """Say whether this is one of the columns above, alone or as a mapping."""
    return isinstance(value, HandleMap | _Values)


def type_of_cells(value: object) -> type | None:
    """Return what stands in a column, or in lists that share one.

    None: it is no column, or what stands there may be of several kinds.
    """
    cells = value
    while isinstance(cells, HandleMap | Lists):
        inner = cast("HandleMap[object] | Lists[object]", cells)
        cells = inner.cells if isinstance(inner, HandleMap) else inner.flat
        if isinstance(cells, Lists):
            return None
    if isinstance(cells, HandleColumn):
        return str
    numbers = cast("Column[object]", cells).cells if isinstance(cells, Column) else None
    if not isinstance(numbers, array):
        return None
    return float if numbers.typecode == "d" else int
