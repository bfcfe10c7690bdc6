"""All that is wrong with settings at once; the template and the schema of a settings file."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import groupby
from textwrap import fill
from typing import Any, TypeGuard, cast

from pydantic import BaseModel, ValidationError

from covey.base.errors import ConfigError
from covey.components.built_ins import DEFAULTS
from covey.components.parts import (
    Part,
    described,
    described_in,
    find,
    settings_of_kind,
    shared_settings,
)
from covey.config.rules import Refusal
from covey.config.sections import Sections

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
_MANY = {"string": "strings", "object": "tables"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        section: empty for those that stand before all sections.
        default: as TOML and JSON have it: lists, not tuples.
        description: what it means, in Markdown.
        allowed: its type and range in words.
        owners: the components that have it; none: it is there whatever else is set.
    """

    section: str
    name: str
    default: object
    description: str
    allowed: str
    owners: tuple[str, ...] = ()

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
    return tuple(_settings_of("", Sections))


def _settings_of(section: str, cls: type[BaseModel]) -> Iterator[Setting]:
    specs, told = schema() if cls is Sections else cls.model_json_schema(), described_in(cls)
    for name, field in cls.model_fields.items():
        kind, spec = _kind(field.metadata), specs["properties"][name]
        if kind:
            yield from _settings_of_part(section, name, kind, told.get(name, ""))
        elif _is_section(field.annotation):
            yield from _settings_of(name, field.annotation)
        else:
            yield Setting(section, name, spec["default"], told[name], in_words(spec))


def _settings_of_part(
    section: str, name: str, kind: str, about: str, of: tuple[str, ...] = ()
) -> Iterator[Setting]:
    """Yield the setting that names a component, and those of all that it may name."""
    within = f"{section}.{name}" if section else name
    name_spec = spec_of([*within.split("."), "name"]) or {}
    here = (section, name) if section else (name, "name")
    text = f"{about}. {described(kind)}" if section else described(kind)
    yield Setting(*here, DEFAULTS[kind], text, in_words(name_spec), of)
    every, shared = settings_of_kind(kind), shared_settings(kind)
    for key in dict.fromkeys(key for fields in every.values() for key in fields):
        having = tuple(n for n, fields in every.items() if key in fields)
        cls, spec = find(kind, having[0], kind), every[having[0]][key]
        owners = () if key in shared else having
        prefix = f"{', '.join(f'`{each}`' for each in owners)}: " if owners else ""
        text = f"{prefix}{described_in(cls).get(key, '')}"
        if inner := _kind(cls.model_fields[key].metadata):
            yield from _settings_of_part(within, key, inner, text, owners)
        else:
            yield Setting(within, key, spec["default"], text, in_words(spec), owners)


def _kind(metadata: Iterable[object]) -> str:
    """Return the kind of component that a setting holds; "": it is a plain value."""
    return next((each.kind for each in metadata if isinstance(each, Part)), "")


def kind_at(path: Sequence[str]) -> str:
    """Return the kind of component at a place in the settings; "": there is none."""
    classes: list[type[BaseModel]] = [Sections]
    kind = ""
    for part in path:
        fields = [cls.model_fields[part] for cls in classes if part in cls.model_fields]
        kind = next(filter(None, (_kind(field.metadata) for field in fields)), "")
        inner = [find(kind, name, kind) for name in settings_of_kind(kind)] if kind else []
        classes = inner or [f.annotation for f in fields if _is_section(f.annotation)]
    return kind


def _is_section(annotation: object) -> TypeGuard[type[BaseModel]]:
    return inspect.isclass(annotation) and issubclass(annotation, BaseModel)


def known_settings(section: Sequence[str], name: str) -> frozenset[str] | None:
    """Return what may stand beside the name of a component; None: that is not known."""
    kind = kind_at(section)
    if not kind:
        return None
    try:
        found = find(kind, name, kind)
    except ConfigError:
        return None
    return frozenset(found.model_fields) if _is_section(found) else shared_settings(kind)


def spec_of(path: Sequence[str | int]) -> Spec | None:
    """Return what the schema says of a section, a setting, or a part of one.

    None where there is no such thing.
    """
    spec: Spec | None = schema()
    for part in path:
        if isinstance(part, str):
            inner = _table(spec).get("properties", {}).get(part)
        else:
            inner = dict(enumerate(spec.get("prefixItems", ()))).get(part, spec.get("items"))
        if inner is None:
            return None
        spec = _resolved(inner)
    return spec


def _table(spec: Spec) -> Spec:
    """Return of a setting that may be a name or a table what the table is."""
    return next((each for each in spec.get("anyOf", ()) if "properties" in each), spec)


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
        others = (each for each in spec.get("anyOf", ()) if "properties" not in each)
        rest = [in_words(each) for each in others if not choices(each)]
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
    return f"a list of {_MANY[item['type']]}{inside}"


Path = tuple[str | int, ...]
Error = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with settings.

    Attributes:
        message: a sentence, or a few, for a person: what, why, and the remedy.
        key: the setting; None where settings that are fine one by one disagree.
        value: what stands there, as JSON can say it.
        expected: what it may be, in words.
        did_you_mean: the name or the value that was probably meant.
    """

    message: str
    key: str | None = None
    value: object = None
    expected: str | None = None
    did_you_mean: str | None = None


def together(problems: Sequence[Problem]) -> str:
    """Return one message of them all."""
    if len(problems) == 1:
        return problems[0].message
    lines = "\n".join(f"- {each.message}" for each in problems)
    return f"{len(problems)} mistakes in the settings:\n{lines}"


def problems_of(
    given: Mapping[str, Any], disagreements: Callable[[Sections], Iterable[Refusal]]
) -> tuple[Problem, ...]:
    """Return all that is wrong with nested settings; none: they can be played.

    What must hold between settings is asked of those that are fine one by one: a
    disagreement with one that is not is no news.
    """
    found: list[Problem] = []
    wrong: set[str] = set()
    settings: Mapping[str, Any] = given
    for _ in range(2):  # what else is wrong with a component shows once its name is right
        try:
            sections = Sections.model_validate(settings)
            break
        except ValidationError as error:
            by_path: dict[Path, list[Error]] = {}  # a choice between types makes several of each
            for each in error.errors():
                by_path.setdefault(_path(each), []).append(cast("Error", each))
            found.extend(_problem(path, errors, given) for path, errors in by_path.items())
            wrong |= {".".join(map(str, path[:2])) for path in by_path}
            settings = _without(settings, list(by_path))
    else:
        return tuple(found)
    for refusal in disagreements(sections):
        if not wrong.intersection(refusal.keys):
            found.append(Problem(refusal.message, refusal.keys[0]))
    return tuple(found)


def _without(given: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """Leave out settings that are wrong, whole: a group of clients with all others."""
    wrong, tops = {path[:2] for path in paths}, {path[0] for path in paths}
    return {
        name: {
            key: each
            for key, each in cast("Mapping[str, Any]", value).items()
            if (name, key) not in wrong
        }
        if isinstance(value, Mapping)
        else value
        for name, value in given.items()
        if (name,) not in wrong and (isinstance(value, Mapping) or name not in tops)
    }


def _path(error: Mapping[str, Any]) -> Path:
    """Return where an error is, without the names of types that may stand at its end."""
    *above, last = error["loc"]
    short = error["type"] == "missing" and isinstance(last, int)
    path: Path = ()
    # a list that lacks something is wrong as a whole
    for part in above if short else error["loc"]:
        spec = spec_of(path)
        if spec is None or _table(spec).get("type") not in ("object", "array"):
            break
        path = (*path, part)
    return path


def _problem(path: Path, errors: Sequence[Error], given: Mapping[str, Any]) -> Problem:
    value, kind = errors[0]["input"], errors[0]["type"]
    nested = len(path) > 2 and path[-1] == "name"
    key = ".".join(map(str, path[:-1] if nested else path))
    if kind == "extra_forbidden":
        return _unknown(path, value, given)
    if kind == "component":
        told: str = errors[0]["ctx"]["why"].replace("{key}", key)  # that it does not know itself
        message = told if told.startswith(key) else f"{key} {told}"
        return Problem(message, key, value, in_words(spec_of(path) or {}))
    if kind == "value_error":  # a component's own sentence
        return Problem(f"{key}: {errors[0]['ctx']['error']}", key)
    own = ":" in _named_at([str(part) for part in path[:-1]], given)
    spec = {} if own else spec_of(path) or {}
    if not spec:  # a setting of a user's own component
        told = errors[0]["msg"]
        message = f"{key} = {_shown(value)} is not possible: {told[0].lower()}{told[1:]}."
        return Problem(f"{message} Change the value.", key, value, told)
    expected = in_words(spec)
    if kind == "missing" and len(path) > 2:  # of a group of clients
        message = f"{key} is missing: it must be {expected}. Add it."
        return Problem(message, key, None, expected)
    if any(each["type"] == "finite_number" for each in errors):
        expected = expected.replace("a number", "a finite number")
    meant, hint = _value_meant(value, spec)
    message = f"{key} = {_shown(value)} is not possible: it must be {expected}. {hint}"
    return Problem(f"{message}Change the value.", key, _sayable(value), expected, meant)


def _value_meant(value: object, spec: Spec) -> tuple[str | None, str]:
    """Return what was probably meant by a text, and the question whether it was."""
    if not isinstance(value, str):
        return None, ""
    for word in get_close_matches(value, choices(spec), n=1):
        return word, f"Did you mean {word!r}? "
    for kind, read in (("integer", int), ("number", float)):
        if kind in {each.get("type") for each in (spec, *spec.get("anyOf", ()))}:
            with suppress(ValueError):
                number = str(read(value))
                return number, f"Did you mean {number}, without quotes? "
    return None, ""


def _unknown(path: Path, value: object, given: Mapping[str, Any]) -> Problem:
    """Return what is wrong with a name that no setting has, or no setting of a component."""
    key, section = ".".join(map(str, path)), [str(part) for part in path[:-1]]
    found = "" if isinstance(value, Mapping) else f", found {_shown(value)}"
    if holder := holder_missing([*section, str(path[-1])], given):
        needed, named = holder
        message = (
            f"{key} = {_shown(value)} is a setting of {needed}, found {named!r}. "
            f"Remove it, or choose another."
        )
        return Problem(message, key, value, needed)
    known = sorted(_table(spec_of(path[:-1]) or {}).get("properties", ()))
    meant = _name_meant(path, known)
    there = f"Did you mean {meant}?" if meant else f"Known there: {', '.join(known)}."
    message = f"Unknown setting {key!r}{found}. {there} Correct the name."
    return Problem(message, key, _sayable(value), "the name of a setting", meant)


def holder_missing(path: Sequence[str], given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return which components have a setting, and the one that is named, which does not.

    None where that one has it, or none has.
    """
    *section, key = path
    kind = kind_at(section)
    if not kind:
        return None
    named = _named_at(section, given) or DEFAULTS.get(kind, "")
    owners = [n for n, fields in settings_of_kind(kind).items() if key in fields]
    if not owners or named in owners or key in (known_settings(section, named) or ()):
        return None
    holder = f"{'.'.join(section)}{'.name' if len(section) == 1 else ''}"
    return f"{holder} = {' or '.join(map(repr, owners))}", named


def _named_at(section: Sequence[str], given: Mapping[str, Any]) -> str:
    """Return the name of the component at a place in settings as they were written."""
    inner: Any = given
    for part in section:
        inner = inner.get(part, {}) if isinstance(inner, Mapping) else {}
    found = inner.get("name", "") if isinstance(inner, Mapping) else inner
    return found if isinstance(found, str) else getattr(found, "name", "")


def _name_meant(path: Path, known: Sequence[str]) -> str | None:
    """Return the whole name nearest to an unknown one: there, else in any section."""
    *above, name = map(str, path)
    inside = len(path) > 2  # a group of clients, whose names are its own
    elsewhere = {} if inside else {s.name: s.key for s in reversed(settings())}
    if name in elsewhere:
        return elsewhere[name]
    if near := get_close_matches(name, known, n=1):
        return ".".join([*above, *near])
    near = get_close_matches(name, elsewhere, n=1, cutoff=0.8)
    return elsewhere[near[0]] if near else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _sayable(value: object) -> object:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value


_HEAD = (
    "Every setting of a covey run, at its default: change what you need, and leave out "
    "what you do not change. `covey config check FILE` tells what is wrong with it, and "
    "what in it does nothing."
)


def template() -> str:
    """Return a TOML file of all settings at their defaults, which gives `Config()`.

    What only components have that are not the default stands there as a comment.
    """
    parts = [_comment(_HEAD)]
    usual = {each.key: each.default for each in settings()}
    for section, own in groupby(settings(), key=lambda each: each.section.partition(".")[0]):
        if section:
            parts.append(f"{_comment(f'{about(section)}.')}\n[{section}]")
        name = usual.get(f"{section}.name")
        for each in own:
            key = each.key.removeprefix(f"{section}.")
            live = "." not in key and (not each.owners or name in each.owners)
            line = f"{key} = {json.dumps(each.default)}"  # TOML writes these as JSON
            text = _comment(f"{each.description}. Allowed: {each.allowed}.")
            parts.append(f"{text}\n{line if live else f'# {line}'}")
    return "\n\n".join(parts) + "\n"


def about(section: str) -> str:
    """Return what a section is for, in a sentence without its full stop."""
    cls = Sections.model_fields[section].annotation
    told = described_in(Sections).get(section) or inspect.cleandoc(cls.__doc__ or "")
    return told.splitlines()[0].rstrip(".").capitalize()


def _comment(text: str) -> str:
    return fill(text, 88, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
