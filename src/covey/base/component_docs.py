"""What components say of themselves: their settings, in words and as a JSON schema."""

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from covey.base.built_ins import BUILT_INS, DEFAULTS
from covey.base.component_names import find, known_names


@cache
def described_in(cls: type) -> Mapping[str, str]:
    """Return what docstrings say of attributes by name, those of the classes above too."""
    meanings: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        text = inspect.cleandoc(each.__doc__ or "")
        _, _, listed = text.partition("\nAttributes:\n")
        listed = listed.partition("\n\n")[0]
        for entry in re.split(r"\n(?=    \w)", f"\n{listed}"):
            name, colon, meaning = entry.strip().partition(": ")
            if colon:
                meanings[name] = re.sub(r"\s+", " ", meaning).removesuffix(".")
    return meanings


@cache
def described(kind: str) -> str:
    """Return what can be chosen of a kind, in Markdown: of each its docstring's first sentence."""
    lines: list[str] = []
    for name in BUILT_INS[kind]:
        paragraph = inspect.cleandoc(find(kind, name, kind).__doc__ or "").partition("\n\n")[0]
        said = " ".join(paragraph.split()).partition(". ")[0].removesuffix(".")
        rest = said.partition(" ")[0][1:]
        lines.append(
            f"`{name}`: {said[:1].lower() if rest == rest.lower() else said[:1]}{said[1:]}"
        )
    return "; ".join([*lines, "or `package.module:name`"])


@cache
def spec_of_kind(kind: str) -> dict[str, Any]:
    """Return the JSON schema of a setting that is a component of this kind."""
    pattern = r"^[\w.]+:\w+$" + (r"|^[A-Z]\w*$" if kind == "optimizer" else "")
    names = [
        {"type": "string", "enum": [*known_names(kind)]},
        {"type": "string", "pattern": pattern},
    ]
    default = {"default": DEFAULTS[kind]} if kind in DEFAULTS else {}
    properties: dict[str, Any] = {
        "name": {"anyOf": names, "description": described(kind), **default}
    }
    for specs in settings_of_kind(kind).values():
        for key, spec in specs.items():
            properties.setdefault(key, spec)
    return {"anyOf": [*names, {"type": "object", "properties": properties}], **default}


@cache
def settings_of_kind(kind: str) -> Mapping[str, Mapping[str, dict[str, Any]]]:
    """Return the JSON schema of every setting of every built-in component of a kind."""
    by_name: dict[str, Mapping[str, dict[str, Any]]] = {}
    for name in BUILT_INS[kind]:
        cls = find(kind, name, kind)
        if inspect.isclass(cls) and issubclass(cls, BaseModel):
            by_name[name] = cls.model_json_schema().get("properties", {})
    return by_name
