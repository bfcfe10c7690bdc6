"""Honest files, mangled: cut, flipped, spliced, and of other types at every key."""

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tomli_w
from hypothesis import strategies as st

DEEP, NESTED, DIGITS = "@deep@", "@nested@", "@digits@"
SPELT = {DEEP: b"[" * 50_000, NESTED: b"[" * 700 + b"]" * 700, DIGITS: b"9" * 5_000}
"""What no library writes: put in where these words stand."""

ODD = (
    *(True, 0, -1, 2**63, 10**30, 0.5, 1e308, float("nan"), float("-inf")),
    *("", "\0", "\ud800", "x" * 5_000, "../../etc/passwd", "1", DEEP, NESTED, DIGITS),
    *([], {}, [[]], [1, 2], {"a": 1}, ["a", {"b": []}]),
)
IN_JSON = (*ODD, None)
SPLICED = (
    *(b"\0", b"\xed\xa0\x80", b"\xff\xfe", b"\\ud800", b"null", b"NaN", b"1e999"),
    *(b"-1", b'"', b"\n", b"{}", b"{" * 9, b'{"a":' * 50_000, *SPELT.values()),
)


@dataclass(frozen=True)
class Honest:
    """A file's content or document, which no message of Hypothesis is to show."""

    content: Any = field(repr=False)


@st.composite
def of_bytes(draw: st.DrawFn, honest: "Honest") -> bytes:
    """A file cut short, with bits flipped, with bytes put in or moved, or of no sense."""
    content = bytearray(honest.content)
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2), label="from, to"))
        way = draw(st.sampled_from(("cut", "flip", "splice", "repeat", "noise")))
        if way == "cut":
            del content[start:]
        elif way == "flip" and start < len(content):
            content[start] ^= 1 << draw(st.integers(0, 7))
        elif way == "splice":
            content[start : start + draw(st.integers(0, 9))] = draw(st.sampled_from(SPLICED))
        elif way == "repeat":
            content[start:start] = content[start : min(end, start + 999)]
        elif way == "noise":
            content[start : start + 99] = draw(st.binary(max_size=99))
    return bytes(content)


def _places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value, the whole first."""
    yield above
    keys = list(tree) if isinstance(tree, dict) else []
    if isinstance(tree, list):
        keys = range(len(tree))[:3]
    for key in keys:
        yield from _places(tree[key], (*above, key))


def _put(tree: Any, way: tuple[Any, ...], value: object) -> Any:
    if not way:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[way[0]] = _put(tree[way[0]], way[1:], value)
    return copy


def _without(tree: Any, way: tuple[Any, ...]) -> Any:
    first, *rest = way
    if rest:
        return _put(tree, (first,), _without(tree[first], tuple(rest)))
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    del copy[first]
    return copy


@st.composite
def of_tree(draw: st.DrawFn, honest: Honest, odd: tuple[Any, ...] = IN_JSON) -> Any:
    """A document in which one or two values are of another type, or gone."""
    tree = honest.content
    for _ in range(draw(st.integers(1, 2))):
        if not isinstance(tree, (dict, list)):
            break
        way = draw(st.sampled_from(list(_places(tree))))
        if way and draw(st.integers(0, 5)) == 0:
            tree = _without(tree, way)
        else:
            tree = _put(tree, way, draw(st.sampled_from(odd)))
    return tree


def _spelt(text: bytes) -> bytes:
    for word, content in SPELT.items():
        text = text.replace(f'"{word}"'.encode(), content)
    return text


def json_text(tree: Any) -> bytes:
    return _spelt(json.dumps(tree).encode())


def of_json(honest: bytes) -> st.SearchStrategy[bytes]:
    return of_tree(Honest(json.loads(honest))).map(json_text)


def of_toml(honest: bytes) -> st.SearchStrategy[bytes]:
    def text(tree: Any) -> bytes:
        whole = tree if isinstance(tree, dict) else {"whole": tree}
        return _spelt(tomli_w.dumps(whole).encode("utf-8", "surrogatepass"))

    return of_tree(Honest(tomllib.loads(honest.decode())), ODD).map(text)


def of_safetensors(honest: bytes) -> st.SearchStrategy[bytes]:
    """A file of tensors with another header, or other words of covey's in it."""
    end = 8 + int.from_bytes(honest[:8], "little")
    header, tensors = json.loads(honest[8:end]), honest[end:]

    def whole(text: bytes) -> bytes:
        return len(text).to_bytes(8, "little") + text + tensors

    def with_words(words: bytes) -> bytes:
        content = {"covey": words.decode("utf-8", "surrogatepass")}
        return whole(json_text({**header, "__metadata__": content}))

    headers = of_tree(Honest(header)).map(json_text).map(whole)
    words = header.get("__metadata__", {}).get("covey")
    return headers if words is None else headers | of_json(words).map(with_words)
