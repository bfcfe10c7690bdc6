"""What settings there are: each with its meaning and range, as a schema, and as a file."""

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from textwrap import fill, shorten
from typing import Any, TypeGuard

from pydantic import BaseModel

from covey.base.built_ins import default_of
from covey.base.component_names import described, described_in, find, settings_of_kind, spec_of_kind
from covey.base.components import Part, shared_settings
from covey.base.errors import ConfigError
from covey.settings.schema import Sections

Spec = Mapping[str, Any]
"""What a JSON schema says of one value."""

_BOUNDS = (
    ("exclusiveMinimum", "greater than"),
    ("minimum", "greater than or equal to"),
    ("exclusiveMaximum", "less than"),
    ("maximum", "less than or equal to"),
)

_ONE = {
    "string": "a string",
    "boolean": "true or false",
    "object": "a table",
    "integer": "an integer",
    "number": "a number",
}

_MANY = {"string": "strings", "object": "tables", "number": "numbers"}


_HEAD = (
    "The settings of a covey run, at their defaults: change what you need, and leave out what you "
    "do not change. `covey config check FILE` lists what is wrong with it, and what in it does "
    "nothing; the reference explains each, and those of other components."
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        section: empty for those that stand before all sections.
        default: as TOML and JSON have it: lists, not tuples.
        description: what it means, in Markdown.
        spec: what the JSON schema says of it; of a component, of its name.
        kind: of the component that it names; "": it is a plain value.
        owners: the components that have it; none: it is there whatever else is set.
    """

    section: str
    name: str
    default: object
    description: str
    spec: Spec
    kind: str = ""
    owners: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The whole name: `section.key`."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def allowed(self) -> str:
        """Its type and range in words."""
        return in_words(self.spec)


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
    return tuple(_settings_of("", Sections))


@cache
def settings_by_key() -> Mapping[str, Setting]:
    """Return all settings by their whole names."""
    return {setting.key: setting for setting in settings()}


def _settings_of(section: str, cls: type[BaseModel]) -> Iterator[Setting]:
    specs, docs = schema() if cls is Sections else cls.model_json_schema(), described_in(cls)
    for name, field in cls.model_fields.items():
        kind, spec = _kind(field.metadata), specs["properties"][name]
        if kind:
            yield from _settings_of_part(section, name, kind, docs.get(name, ""))
        elif _is_section(field.annotation):
            yield from _settings_of(name, field.annotation)
        else:
            yield Setting(section, name, spec["default"], docs[name], spec)


def _settings_of_part(
    section: str, name: str, kind: str, about: str, of: tuple[str, ...] = ()
) -> Iterator[Setting]:
    """Yield the setting that names a component, and those of all that it may name."""
    within = f"{section}.{name}" if section else name
    *_, table = spec_of_kind(kind)["anyOf"]
    here = (section, name) if section else (name, "name")
    text = f"{about}. {described(kind)}" if section else described(kind)
    yield Setting(*here, default_of(kind), text, table["properties"]["name"], kind, of)
    every, shared = settings_of_kind(kind), shared_settings(kind)
    for key in dict.fromkeys(key for fields in every.values() for key in fields):
        having = tuple(n for n, fields in every.items() if key in fields)
        cls, spec = find(kind, having[0], kind), every[having[0]][key]
        owners = () if key in shared else having
        prefix = f"{', '.join(f'`{owner}`' for owner in owners)}: " if owners else ""
        text = f"{prefix}{described_in(cls).get(key, '')}"
        if inner := _kind(cls.model_fields[key].metadata):
            yield from _settings_of_part(within, key, inner, text, owners)
        else:
            yield Setting(within, key, spec["default"], text, spec, owners=owners)


def _kind(metadata: Iterable[object]) -> str:
    """Return the kind of component that a setting holds; "": it is a plain value."""
    return next((part.kind for part in metadata if isinstance(part, Part)), "")


def kind_at(path: Sequence[str]) -> str:
    """Return the kind of component at a place in the settings; "": there is none."""
    known = settings_by_key()
    key = ".".join(path if len(path) > 1 else (*path, "name"))
    return known[key].kind if key in known and [*path[1:]] != ["name"] else ""


def _is_section(annotation: object) -> TypeGuard[type[BaseModel]]:
    return inspect.isclass(annotation) and issubclass(annotation, BaseModel)


def known_settings(section: Sequence[str], name: str) -> frozenset[str] | None:
    """Return what may stand beside the name of a component; None: that is not known."""
    kind = kind_at(section)
    if not kind:
        return None
    try:
        component = find(kind, name, kind)
    except ConfigError:
        return None
    return frozenset(component.model_fields) if _is_section(component) else shared_settings(kind)


def _resolved(spec: Spec) -> Spec:
    """Follow a reference, which stands for a section or a group."""
    reference = spec.get("$ref")
    return spec if reference is None else schema()["$defs"][reference.split("/")[-1]]


def choices(spec: Spec) -> list[str]:
    """Return the words that a setting may be, where it has some."""
    if "anyOf" in spec:
        return [word for branch in spec["anyOf"] for word in choices(branch)]
    return [*spec.get("enum", ()), *([spec["const"]] if "const" in spec else [])]


def in_words(spec: Spec) -> str:
    """Return the type and the range of a value."""
    spec = _resolved(spec)
    if words := choices(spec):
        others = (branch for branch in spec.get("anyOf", ()) if "properties" not in branch)
        rest = [in_words(branch) for branch in others if not choices(branch)]
        several = "one of " if len(words) > 1 else ""
        return " or ".join([f"{several}{', '.join(map(repr, words))}", *rest])
    if "properties" in spec:
        return f"a table of {', '.join(spec['properties'])}"
    if spec["type"] == "array":
        return _list_in_words(spec)
    bounds = [f"{words} {spec[key]:g}" for key, words in _BOUNDS if key in spec]
    kind = "package.module:name" if "pattern" in spec else _ONE[spec["type"]]
    return f"{kind} {' and '.join(bounds)}".strip()


def _list_in_words(spec: Spec) -> str:
    if "prefixItems" in spec:
        parts = [in_words(item) for item in spec["prefixItems"]]
        if len(set(parts)) == 1:
            return f"[low, high], each {parts[0]}"
        return f"[{', '.join(parts)}]"
    item = _resolved(spec["items"])
    if choices(item):
        return f"a list, each {in_words(item)}"
    if item["type"] == "array":
        return f"a list of {_list_in_words(item)}"
    inside = f" of {', '.join(item['properties'])}" if "properties" in item else ""
    return f"a list of {_MANY[item['type']]}{inside}"


_WIDTH, _COLUMN = 100, 32


def template() -> str:
    """Return a TOML file of the settings that count by default, which gives `Config()`."""
    parts = [fill(_HEAD, _WIDTH, initial_indent="# ", subsequent_indent="# ")]
    usual = {setting.key: setting.default for setting in settings()}
    for section, own in groupby(settings(), key=lambda setting: setting.section.partition(".")[0]):
        lines = [f"[{section}]  # {about(section)}"] if section else []
        for setting in own:
            key, name = setting.key.removeprefix(f"{section}."), usual.get(f"{section}.name")
            if "." not in key and (not setting.owners or name in setting.owners):
                line = f"{key} = {json.dumps(setting.default)}"  # TOML writes these as JSON
                lines.append(f"{line:<{_COLUMN}}  # {_shortened(setting, _WIDTH - _COLUMN - 4)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _shortened(setting: Setting, width: int) -> str:
    """Return what a setting may name, or else means, as far as it goes on a line."""
    owners = ", ".join(f"`{owner}`" for owner in setting.owners)
    text = setting.description.removeprefix(f"{owners}: ").partition(". ")[0]
    if setting.kind:
        text = ", ".join([*choices(setting.spec), "or package.module:name"])
    return shorten(text, width, placeholder=" ...", break_on_hyphens=False)


def about(section: str) -> str:
    """Return what a section is for, in a sentence without its full stop."""
    cls = Sections.model_fields[section].annotation
    meaning = described_in(Sections).get(section) or inspect.cleandoc(cls.__doc__ or "")
    return meaning.splitlines()[0].rstrip(".").capitalize()
