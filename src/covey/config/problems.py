"""All that is wrong with settings at once; the template and the schema of a settings file."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import groupby
from textwrap import fill
from typing import Any, cast

from pydantic import ValidationError

from covey.config.sections import Sections

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
            yield Setting(section, name, given["default"], given["description"], in_words(given))


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


Path = tuple[str | int, ...]
Error = Mapping[str, Any]
LONGEST = 80
"""Characters of a value that a message repeats."""


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
    given: Mapping[str, Any], disagreements: Callable[[Sections], Sequence[str]]
) -> tuple[Problem, ...]:
    """Return all that is wrong with nested settings; none: they can be played.

    What must hold between settings is asked of those that are fine one by one: a
    disagreement with one that is not is no news.
    """
    found: list[Problem] = []
    paths: list[Path] = []
    try:
        sections = Sections.model_validate(given)
    except ValidationError as error:
        for path, errors in _by_path(error).items():
            found.append(_problem(path, errors))
            paths.append(path)
        try:
            sections = Sections.model_validate(_without(given, paths))
        except ValidationError:
            return tuple(found)
    return (*found, *map(Problem, _not_of(paths, disagreements(sections))))


def _not_of(paths: Sequence[Path], messages: Sequence[str]) -> Iterator[str]:
    """Yield the messages that name none of these settings, in full or by the key alone."""
    names = [
        rf"(?:\b{re.escape(str(above[0]))}\.|(?<![\w.])){re.escape(str(name))}\b"
        if above
        else rf"\b{re.escape(str(name))}\b"
        for *above, name in (path[:2] for path in paths if path)
    ]
    for message in messages:
        if not any(re.search(name, message) for name in names):
            yield message


def _without(given: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """Leave out settings that are wrong, whole: a group of clients with all others."""
    wrong = {path[:2] for path in paths}
    return {
        name: {
            key: each
            for key, each in cast("Mapping[str, Any]", value).items()
            if (name, key) not in wrong
        }
        if isinstance(value, Mapping)
        else value
        for name, value in given.items()
        if (name,) not in wrong
    }


def _by_path(error: ValidationError) -> dict[Path, list[Error]]:
    """Return errors by the setting; a choice between types makes several of each."""
    found: dict[Path, list[Error]] = {}
    for each in error.errors():
        found.setdefault(_path(each), []).append(cast("Error", each))
    return found


def _path(error: Mapping[str, Any]) -> Path:
    """Return where an error is, without the names of types that may stand at its end."""
    *above, last = error["loc"]
    short = error["type"] == "missing" and isinstance(last, int)
    path: Path = ()
    # a list that lacks something is wrong as a whole
    for part in above if short else error["loc"]:
        spec = spec_of(path)
        if spec is None or spec.get("type") not in ("object", "array"):
            break
        path = (*path, part)
    return path


def _problem(path: Path, errors: Sequence[Error]) -> Problem:
    key, value, kind = ".".join(map(str, path)), errors[0]["input"], errors[0]["type"]
    if kind == "extra_forbidden":
        return _unknown(path, value)
    spec = spec_of(path) or {}
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


def _unknown(path: Path, value: object) -> Problem:
    """Return what is wrong with a name that no setting has."""
    key = ".".join(map(str, path))
    known = sorted((spec_of(path[:-1]) or {}).get("properties", ()))
    meant = _name_meant(path, known)
    found = "" if isinstance(value, Mapping) else f", found {_shown(value)}"
    there = f"Did you mean {meant}?" if meant else f"Known there: {', '.join(known)}."
    message = f"Unknown setting {key!r}{found}. {there} Correct the name."
    return Problem(message, key, _sayable(value), "the name of a setting", meant)


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
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _sayable(value: object) -> object:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value


WIDTH = 88
HEAD = (
    "Every setting of a covey run, at its default: change what you need, and leave out "
    "what you do not change. `covey config check FILE` tells what is wrong with it, and "
    "what in it does nothing."
)


def template() -> str:
    """Return a TOML file of all settings at their defaults, which gives `Config()`."""
    parts = [_comment(HEAD)]
    for section, own in groupby(settings(), key=lambda each: each.section):
        if section:
            reference = schema()["properties"][section]["$ref"].split("/")[-1]
            about = schema()["$defs"][reference]["description"]
            parts.append(f"{_comment(about)}\n[{section}]")
        parts.extend("\n".join(_lines(each)) for each in own)
    return "\n\n".join(parts) + "\n"


def _lines(setting: Setting) -> Iterator[str]:
    yield _comment(setting.description)
    yield _comment(f"Allowed: {setting.allowed}.")
    yield f"{setting.name} = {json.dumps(setting.default)}"  # TOML writes these as JSON


def _comment(text: str) -> str:
    return fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
