"""Frozen dataclasses as JSON: their fields are its keys.

One way for what commands answer, what reports sign and what a run's summary is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

INLINE = {"json": "inline"}
"""`metadata` of a field whose value has keys that stand among the answer's own."""
OPTIONAL = {"json": "optional"}
"""`metadata` of a field that JSON has only where it is not None."""
HIDDEN = {"json": "hidden"}
"""`metadata` of a field that is for the text alone, or for no reader outside of covey."""


def facts_of(answer: object, *, optional: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a dataclass, those that stand inline among them.

    Args:
        answer: a dataclass, or a mapping that stands inline.
        optional: whether a field that may be absent is absent where it is None.
    """
    if isinstance(answer, Mapping):
        yield from ((str(key), value) for key, value in answer.items())
        return
    for field in fields(answer):  # pyright: ignore - a dataclass, as all answers are
        how, value = field.metadata.get("json"), getattr(answer, field.name)
        if how == "inline":
            yield from facts_of(value)
        elif how != "hidden" and not (optional and how == "optional" and value is None):
            yield field.name, value


def json_of(value: object) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a value as JSON has it."""
    if isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type)):
        return {key: json_of(fact) for key, fact in facts_of(value)}
    if isinstance(value, list | tuple):
        return [json_of(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value
