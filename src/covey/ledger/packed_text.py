"""The canonical text of columns, without making a text of every number on the way.

It is, byte for byte, what `json` writes of the lists and maps that the columns stand for:
a ledger of millions of participations is verified in seconds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from operator import lt
from typing import Any, cast

from covey.columns import Column, HandleColumn, HandleMap, Lists, as_plain

__all__ = ["canonical", "packed_text"]

QUOTE, ESCAPED = '"', '\\"'


def canonical(value: object) -> str:
    """Return JSON in ASCII, keys sorted, without spaces.

    Raises:
        TypeError: JSON has no word for a value; ValueError: for a number.
    """
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
        default=_spelt_out,
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
    fields = (
        f"{_json(field, quote)}:{_text(body[field], quote)}" for field in sorted(body)
    )
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
