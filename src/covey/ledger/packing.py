"""Bodies of events with many clients, as columns of integers instead of names.

What the chain seals is the canonical text, packed or not: the same events have the same
hashes, and every bit that changes it is seen. Only where it is stored, in place of

    {"by":"clients","clusters":{"h-3f02":1,"h-9a55":0, ...}}

stand a text that says how each field is packed, its form, and the numbers of all columns,
little-endian, one after the other:

    {"columns":{"clusters":["map",["handles",2,10000],["ints",1,10000]]},
     "rest":{"by":"clients"}}

    ["handles", bytes, length]   numbers of handles (see `words.py`)
    ["ints", bytes, length]      whole numbers, 0 or more
    ["maybe", bytes, length]     the same, 1 larger; 0: null
    ["bools", 1, length]
    ["floats", 8, length]        IEEE 754
    ["map", handles, values]     by handle, in the order of their texts
    ["lists", lengths, inner]    lists: how long each is, and what they hold together

A number takes the fewest of 1, 2, 4 and 8 bytes that hold the column's largest one, so
that there is one way to pack a body.

The canonical text of columns, without making a text of every number on the way.

It is, byte for byte, what `json` writes of the lists and maps that the columns stand for:
a ledger of millions of participations is verified in seconds.
"""

import json
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, pairwise
from operator import lt
from typing import Any, cast

from covey.base.columns import Column, HandleColumn, HandleMap, Lists, Words, as_plain
from covey.base.errors import LedgerError

QUOTE, ESCAPED = '"', '\\"'


def canonical(value: object) -> str:
    """Return JSON in ASCII, keys sorted, without spaces.

    Raises:
        TypeError: JSON has no word for a value; ValueError: for a number.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_spelt_out
    )


def _spelt_out(value: object) -> object:
    found = as_plain(value)
    if found is value:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON")
    return found


def packed_text(body: Mapping[str, Any], *, escaped: bool = False) -> str:
    """Return the canonical text of a body with columns.

    Args:
        body: it.
        escaped: as it stands within quotes of another JSON text.
    """
    quote = ESCAPED if escaped else QUOTE
    fields = (f"{_json(field, quote)}:{_text(body[field], quote)}" for field in sorted(body))
    return f"{{{','.join(fields)}}}"


def _text(value: object, quote: str) -> str:
    for kind, written in WRITTEN.items():
        if isinstance(value, kind):
            found = written(value, quote)
            if found is not None:
                return found
    return _json(value, quote)


def _json(value: object, quote: str) -> str:
    found = canonical(value)
    return found if quote == QUOTE else json.dumps(found)[1:-1]


def _handles(column: HandleColumn, quote: str) -> str | None:
    if not len(column) or not column.words.are_plain:
        return None
    return f"[{quote}{f'{quote},{quote}'.join(column)}{quote}]"


def _numbers(column: Column[object], _: str) -> str | None:
    words = _words(column)
    return None if words is None else f"[{','.join(words)}]"


def _map(found: HandleMap[object], quote: str) -> str | None:
    handles = found.handles
    texts, words = list(handles), _words(list(found.values()))
    if words is None or not texts or not handles.words.are_plain:
        return None
    if not all(map(lt, texts, islice(texts, 1, None))):
        return None  # JSON has each key once, in order
    parts = [""] * (2 * len(texts))
    parts[::2] = texts
    after: dict[str, str] = {each: f"{quote}:{each},{quote}" for each in set(words)}
    parts[1::2] = map(after.__getitem__, words)
    return f"{{{quote}{''.join(parts)[: -len(quote) - 1]}}}"


def _lists(lists: Lists[object], quote: str) -> str | None:
    flat, ends = lists.flat, lists.ends
    if not isinstance(flat, HandleColumn) or not flat.words.are_plain or not len(ends):
        return None
    if not ends[0] or any(a == b for a, b in pairwise(ends)):
        return None  # an empty list has no quotes
    parts = [""] * (2 * len(flat))
    parts[::2] = flat
    parts[1::2] = [f"{quote},{quote}"] * len(flat)
    between = f"{quote}],[{quote}"
    for end in ends:
        parts[2 * end - 1] = between
    return f"[[{quote}{''.join(parts)[: -len(between)]}{quote}]]"


def _words(values: Sequence[object]) -> list[str] | None:
    """Return numbers as JSON has them; None: they are not all finite or of one kind."""
    kinds = set(map(type, values))
    if kinds == {float}:
        found = [float.__repr__(each) for each in cast("Sequence[float]", values)]
        return None if any(map(NOT_FINITE.__contains__, found)) else found
    if kinds <= {int, type(None)}:
        words = {each: canonical(each) for each in set(values)}
        return list(map(words.__getitem__, values))
    return None


NOT_FINITE = frozenset({"nan", "inf", "-inf"})

WRITTEN: Mapping[type, Callable[[Any, str], str | None]] = {
    HandleColumn: _handles,
    HandleMap: _map,
    Lists: _lists,
    Column: _numbers,
}


FEWEST = 16
"""How many numbers a field must hold to be packed; text is easier to look at."""

CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
LARGEST = 2**63 - 1
Form = Sequence[Any]


def canonical_body(body: Mapping[str, Any]) -> str:
    """Return the canonical text of `body`: ASCII JSON, keys sorted, no spaces.

    Raises:
        LedgerError: JSON has no word for some value, such as NaN or infinity.
    """
    try:
        return canonical(body)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"An event must hold only what JSON can say, but {error}. "
            f"Turn the value into a text, a number or null before it is recorded."
        ) from error


class Packer:
    """Packs bodies for one transaction, and numbers the handles that are new to it."""

    def __init__(self, words: Words) -> None:
        self._known = words.numbers()
        self._first = len(words)
        self.new: dict[str, int] = {}

    def packed(self, body: Mapping[str, Any]) -> tuple[str, bytes] | None:
        """Return a body as its forms and its columns; None: it is too small for that."""
        columns: dict[str, Form] = {}
        parts: list[bytes] = []
        for field in sorted(body):
            found = self._field(body[field])
            if found is not None:
                columns[field] = found[0]
                parts += found[1]
        if not columns:
            return None
        rest = {field: value for field, value in body.items() if field not in columns}
        return canonical_body({"columns": columns, "rest": rest}), b"".join(parts)

    def _field(self, value: object) -> tuple[Form, list[bytes]] | None:
        if isinstance(value, Mapping):
            return self._map(cast("Mapping[object, object]", value))
        if isinstance(value, Sequence) and not isinstance(value, str):
            return self._sequence(cast("Sequence[object]", value), FEWEST)
        return None

    def _map(self, found: Mapping[object, object]) -> tuple[Form, list[bytes]] | None:
        if len(found) < FEWEST or any(type(key) is not str for key in found):
            return None
        pairs = sorted(cast("Mapping[str, object]", found).items(), key=_key)
        values = _packed_numbers([value for _, value in pairs])
        if values is None:
            return None
        handles = self._handles([key for key, _ in pairs])
        return ["map", handles[0], values[0]], [handles[1], values[1]]

    def _sequence(self, found: Sequence[object], fewest: int) -> tuple[Form, list[bytes]] | None:
        kinds = set(map(type, found))
        if kinds <= LISTS and found:
            inner = cast("Sequence[Sequence[object]]", found)
            flat = list(chain.from_iterable(inner))
            packed = self._sequence(flat, fewest)
            if packed is None:
                return None
            lengths = _ints("ints", list(map(len, inner)))
            return ["lists", lengths[0], packed[0]], [lengths[1], *packed[1]]
        if len(found) < fewest:
            return None
        one = (
            self._handles(cast("Sequence[str]", found))
            if kinds == {str}
            else _packed_numbers(found)
        )
        return None if one is None else (one[0], [one[1]])

    def _handles(self, found: Sequence[str]) -> tuple[Form, bytes]:
        numbers = list(map(self._known.get, found))
        if None in numbers:
            for i, handle in enumerate(found):
                if numbers[i] is None:
                    numbers[i] = self.new.setdefault(handle, self._first + len(self.new))
        return _ints("handles", cast("list[int]", numbers))


LISTS = {list, tuple}


def _key(pair: tuple[str, object]) -> str:
    return pair[0]


def _packed_numbers(values: Sequence[object]) -> tuple[Form, bytes] | None:
    """Return numbers as a column; None: they are of several kinds, or too large."""
    kinds = set(map(type, values))
    if kinds == {float}:
        cells = array("d", cast("Sequence[float]", values))
        return ["floats", 8, len(cells)], _little_endian(cells)
    if kinds == {bool}:
        return ["bools", 1, len(values)], bytes(cast("Sequence[bool]", values))
    if kinds and kinds <= {int, type(None)}:
        return _whole(cast("Sequence[int | None]", values))
    return None


def _whole(values: Sequence[int | None]) -> tuple[Form, bytes] | None:
    known = [value for value in values if value is not None]
    if known and not 0 <= min(known) <= max(known) < LARGEST:
        return None
    if len(known) == len(values):
        return _ints("ints", known)
    return _ints("maybe", [0 if value is None else value + 1 for value in values])


def _ints(kind: str, values: Sequence[int]) -> tuple[Form, bytes]:
    width = _width(max(values, default=0))
    return [kind, width, len(values)], _little_endian(array(CODES[width], values))


def _width(largest: int) -> int:
    return next(width for width in CODES if largest < 1 << 8 * width)


def _little_endian(cells: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        cells.byteswap()
    return cells.tobytes()


@dataclass(frozen=True, slots=True)
class PackedBody:
    """A body as it is stored: forms, and what they are about, at a place in the chain."""

    position: int
    forms: str
    columns: bytes
    words: Words

    def __len__(self) -> int:
        return len(self.forms) + len(self.columns)

    def body(self) -> dict[str, Any]:
        """Return the body, with columns in the place of lists.

        Raises:
            LedgerError: it is not in the one form that there is.
        """
        try:
            return self._body()
        except (
            *(ValueError, TypeError, LookupError, AttributeError),
            *(RecursionError, OverflowError, MemoryError),
        ) as error:
            raise self._broken(error) from error

    def text(self, *, escaped: bool = False) -> str:
        """Return the canonical text, which the chain seals.

        Args:
            escaped: as it stands within quotes of another JSON text.

        Raises:
            LedgerError: it is not in the one form that there is.
        """
        body = self.body()
        try:
            return packed_text(body, escaped=escaped)
        except (ValueError, TypeError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"The ledger is broken at position {self.position}: the event there is not "
            f"packed as covey packs one ({error}). Restore it from a copy."
        )

    def _body(self) -> dict[str, Any]:
        head = json.loads(self.forms)
        columns, rest = head["columns"], head["rest"]
        if head.keys() != {"columns", "rest"} or columns.keys() & rest.keys():
            raise ValueError("its text has other fields")
        if canonical_body(head) != self.forms:
            raise ValueError("its text is not in its one form")
        reader = _Reader(self.columns, self.words)
        found = {field: reader.value(columns[field]) for field in sorted(columns)}
        if reader.place != len(self.columns):
            raise ValueError("its columns are longer than it says")
        return {**found, **rest}


class _Reader:
    """Reads columns one after the other."""

    def __init__(self, columns: bytes, words: Words) -> None:
        self.columns, self.words = columns, words
        self.place = 0

    def value(self, form: Form) -> Any:  # noqa: ANN401 - of any kind
        kind, *more = form
        if kind == "map":
            handles, values = map(self.value, more)
            if not isinstance(handles, HandleColumn) or len(handles) != len(values):
                raise ValueError("a map is not one of handles")
            return HandleMap(handles, values)
        if kind == "lists":
            lengths, flat = map(self.value, more)
            ends = array("I", accumulate(lengths))
            if (ends[-1] if ends else 0) != len(flat):
                raise ValueError("lists do not have the lengths that it says")
            return Lists(ends, flat)
        width, length = more
        if type(width) is not int or type(length) is not int:  # true is 1, too
            raise ValueError("it is not said in whole numbers how long a column is")
        return KINDS[kind](self, width, length)

    def cells(self, code: str, length: int) -> "array[Any]":
        found = array(code)
        end = self.place + found.itemsize * length
        if not self.place <= end <= len(self.columns):
            raise ValueError("its columns are shorter than it says")
        found.frombytes(memoryview(self.columns)[self.place : end])
        if sys.byteorder == "big":
            found.byteswap()
        self.place = end
        return found

    def ints(self, width: int, length: int) -> "array[int]":
        found = self.cells(CODES[width], length)
        if width != _width(max(found, default=0)):
            raise ValueError("numbers take other bytes than they need")
        return found


def _handles_of(reader: _Reader, width: int, length: int) -> HandleColumn:
    found = reader.ints(width, length)
    if max(found, default=0) >= max(1, len(reader.words)):
        raise ValueError("it names a handle that is not there")
    return HandleColumn(reader.words, found)


def _floats_of(reader: _Reader, width: int, length: int) -> Column[float]:
    if width != 8:
        raise ValueError("numbers take other bytes than they need")
    return Column(reader.cells("d", length))


def _bools_of(reader: _Reader, width: int, length: int) -> Column[bool]:
    found = reader.cells("B", length)
    if width != 1 or max(found, default=0) > 1:
        raise ValueError("a truth value is neither")
    return Column(tuple(map(bool, found)))


def _ints_of(reader: _Reader, width: int, length: int) -> Column[int]:
    return Column(reader.ints(width, length))


def _maybe_of(reader: _Reader, width: int, length: int) -> Column[int | None]:
    found: Iterator[int] = iter(reader.ints(width, length))
    return Column(tuple(each - 1 if each else None for each in found))


KINDS: dict[str, Callable[[_Reader, int, int], Any]] = {
    "handles": _handles_of,
    "ints": _ints_of,
    "maybe": _maybe_of,
    "bools": _bools_of,
    "floats": _floats_of,
}
