"""What every setting may be: as a JSON schema, and in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from covey.config.sections import Sections

__all__ = ["Setting", "Spec", "choices", "in_words", "schema", "settings", "spec_of"]

Spec = Mapping[str, Any]
"""What a JSON schema says of one value."""

BOUNDS = (
    ("exclusiveMinimum", "greater than"),
    ("minimum", "greater than or equal to"),
    ("exclusiveMaximum", "less than"),
    ("maximum", "less than or equal to"),
)
PLAIN = {"string": "a string", "boolean": "true or false", "object": "a table"}
MANY = {"string": "strings", "object": "tables"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        section: empty for those that stand before all sections.
        default: as TOML and JSON have it: lists, not tuples.
        description: what it means, in Markdown.
        allowed: its type and range in words.
    """

    section: str
    name: str
    default: object
    description: str
    allowed: str

    @property
    def key(self) -> str:
        """The whole name: `section.key`."""
        return f"{self.section}.{self.name}" if self.section else self.name


@cache
def schema() -> dict[str, Any]:
    """Return the JSON schema of a settings file; treat it as frozen."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Sections.model_json_schema(),
        "title": "Settings of a covey run",
    }


@cache
def settings() -> tuple[Setting, ...]:
    """Return all settings in the order of their sections."""
    return tuple(_settings("", schema()))


def _settings(section: str, spec: Spec) -> Iterator[Setting]:
    for name, given in spec["properties"].items():
        inner = _resolved(given)
        if "properties" in inner:
            yield from _settings(name, inner)
        else:
            yield Setting(
                section, name, given["default"], given["description"], in_words(given)
            )


def spec_of(path: Sequence[str | int]) -> Spec | None:
    """Return what the schema says of a section, a setting, or a part of one.

    None where there is no such thing.
    """
    spec: Spec | None = schema()
    for part in path:
        spec = None if spec is None else _inner(spec, part)
    return spec


def _inner(spec: Spec, part: str | int) -> Spec | None:
    if isinstance(part, str):
        found = spec.get("properties", {}).get(part)
    elif "prefixItems" in spec:
        found = spec["prefixItems"][part] if part < len(spec["prefixItems"]) else None
    else:
        found = spec.get("items")
    return None if found is None else _resolved(found)


def _resolved(spec: Spec) -> Spec:
    """Follow a reference, which stands for a section or a group."""
    reference = spec.get("$ref")
    return spec if reference is None else schema()["$defs"][reference.split("/")[-1]]


def choices(spec: Spec) -> list[str]:
    """Return the words that a setting may be, where it has some."""
    if "anyOf" in spec:
        return [word for each in spec["anyOf"] for word in choices(each)]
    return [*spec.get("enum", ()), *([spec["const"]] if "const" in spec else [])]


def in_words(spec: Spec) -> str:
    """Return the type and the range of a value."""
    spec = _resolved(spec)
    if words := choices(spec):
        rest = [in_words(each) for each in spec.get("anyOf", ()) if not choices(each)]
        return " or ".join([_one_of(words), *rest])
    if "properties" in spec:
        return f"a table of {', '.join(spec['properties'])}"
    if spec["type"] == "array":
        return _list_in_words(spec)
    if spec["type"] in ("integer", "number"):
        kind = "an integer" if spec["type"] == "integer" else "a number"
        bounds = [f"{words} {spec[key]:g}" for key, words in BOUNDS if key in spec]
        return f"{kind} {' and '.join(bounds)}".strip()
    return "package.module:name" if "pattern" in spec else PLAIN[spec["type"]]


def _one_of(words: Sequence[str]) -> str:
    told = ", ".join(map(repr, words))
    return told if len(words) == 1 else f"one of {told}"


def _list_in_words(spec: Spec) -> str:
    if "prefixItems" in spec:
        parts = [in_words(each) for each in spec["prefixItems"]]
        if len(set(parts)) == 1:
            return f"[low, high], each {parts[0]}"
        return f"[{', '.join(parts)}]"
    item = _resolved(spec["items"])
    if choices(item):
        return f"a list, each {in_words(item)}"
    if item["type"] == "array":
        return f"a list of {_list_in_words(item)}"
    inside = f" of {', '.join(item['properties'])}" if "properties" in item else ""
    return f"a list of {MANY[item['type']]}{inside}"
