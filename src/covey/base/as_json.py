"""Frozen dataclasses as JSON: their fields are its keys.

One way for what commands answer, what reports sign and what a run's summary is.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

INLINE = {"json": "inline"}
"""`metadata` of a field whose value has keys that stand among the answer's own."""
OPTIONAL = {"json": "optional"}
"""`metadata` of a field that JSON has only where it is not None."""
HIDDEN = {"json": "hidden"}
"""`metadata` of a field that is for the text alone, or for nobody outside of covey."""


def json_of(value: object) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Any] = {}
        for each in fields(value):
            how, one = each.metadata.get("json"), getattr(value, each.name)
            if how == "inline":
                found |= json_of(one)
            elif how != "hidden" and not (how == "optional" and one is None):
                found[each.name] = json_of(one)
        return found
    if isinstance(value, Mapping):
        return {str(key): json_of(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(each) for each in value]
    return str(value) if isinstance(value, PurePath) else value
