"""All that is wrong with settings at once: each with its key, its remedy, and what was meant."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from covey.base.arguments import must_be
from covey.base.built_ins import default_of
from covey.base.component_names import settings_of_kind
from covey.base.names import nearest
from covey.settings.reference import (
    Setting,
    choices,
    kind_at,
    known_settings,
    settings,
    settings_by_key,
)
from covey.settings.rules import SettingsConflict
from covey.settings.schema import Sections

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
    lines = "\n".join(f"- {problem.message}" for problem in problems)
    return f"{len(problems)} mistakes in the settings:\n{lines}"


def problems_of(
    written: Mapping[str, Any], disagreements: Callable[[Sections], Iterable[SettingsConflict]]
) -> tuple[Problem, ...]:
    """Return all that is wrong with nested settings; none: they can be played.

    What must hold between settings is checked for those that are fine one by one: a
    disagreement with one that is not is no news.
    """
    problems: list[Problem] = []
    wrong: set[str] = set()
    settings = written
    for _ in range(2):  # what else is wrong with a component shows once its name is right
        try:
            sections = Sections.model_validate(settings)
            break
        except ValidationError as error:
            by_path: dict[Path, list[Error]] = {}  # a choice between types makes several of each
            for fault in error.errors():
                by_path.setdefault(_path(fault), []).append(cast("Error", fault))
            problems.extend(_problem(path, errors, written) for path, errors in by_path.items())
            wrong |= {".".join(map(str, path[:2])) for path in by_path}
            settings = _without(settings, list(by_path))
    else:
        return tuple(problems)
    for refusal in disagreements(sections):
        if not wrong.intersection(refusal.keys):
            problems.append(Problem(refusal.message, refusal.keys[0]))
    return tuple(problems)


def _without(written: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """Leave out settings that are wrong, whole: a group of clients with all others."""
    wrong, tops = {path[:2] for path in paths}, {path[0] for path in paths}
    return {
        name: {
            key: inner
            for key, inner in cast("Mapping[str, Any]", value).items()
            if (name, key) not in wrong
        }
        if isinstance(value, Mapping)
        else value
        for name, value in written.items()
        if (name,) not in wrong and (isinstance(value, Mapping) or name not in tops)
    }


def _path(error: Mapping[str, Any]) -> Path:
    """Return where an error is, without the names of types that may stand at its end."""
    *above, last = error["loc"]
    # a list that lacks something is wrong as a whole
    short = error["type"] == "missing" and isinstance(last, int)
    path: Path = ()
    for part in above if short else error["loc"]:
        path = (*path, part)
        here = _setting_at(path)
        if here and not here.kind and here.spec.get("type") != "array":
            break
    return path


def _setting_at(path: Path) -> Setting | None:
    """Return the setting at a place; None: there is none, or it is a part of one."""
    return settings_by_key().get(".".join(map(str, path)))


def _problem(path: Path, errors: Sequence[Error], written: Mapping[str, Any]) -> Problem:
    value, kind = errors[0]["input"], errors[0]["type"]
    place = path[:-1] if len(path) > 2 and path[-1] == "name" else path
    key, here = ".".join(map(str, place)), _setting_at(place)
    if kind == "extra_forbidden":
        return _unknown(path, value, written)
    if kind == "component":
        why: str = errors[0]["ctx"]["why"].replace("{key}", key)
        message = why if why.startswith(key) else f"{key} {why}"
        return Problem(message, key, value, here.allowed if here else None)
    if kind == "value_error":  # a component's own sentence
        return Problem(f"{key}: {errors[0]['ctx']['error']}", key)
    own = ":" in _named_at([str(part) for part in path[:-1]], written)
    if own or here is None:  # a setting of a user's own component, or a part of a list
        message = f"{key} {must_be(errors[0])}, found {_shown(value)}: change the value."
        return Problem(message, key, _sayable(value), errors[0]["msg"])
    expected = here.allowed
    if any(error["type"] == "finite_number" for error in errors):
        expected = expected.replace("a number", "a finite number")
    meant, hint = _value_meant(value, here)
    message = f"{key} must be {expected}, found {_shown(value)}: {hint}"
    return Problem(message, key, _sayable(value), expected, meant)


def _value_meant(value: object, here: Setting) -> tuple[str | None, str]:
    """Return what was probably meant by a text, and the question whether it was, or else advice."""
    if not isinstance(value, str):
        return None, "change the value."
    if word := nearest(value, choices(here.spec)):
        return word, f"do you mean {word!r}?"
    for kind, read in (("integer", int), ("number", float)):
        if kind in {branch.get("type") for branch in (here.spec, *here.spec.get("anyOf", ()))}:
            with suppress(ValueError):
                number = str(read(value))
                return number, f"do you mean {number}, without quotes?"
    return None, "change the value."


def _unknown(path: Path, value: object, written: Mapping[str, Any]) -> Problem:
    """Return what is wrong with a name that no setting has, or no setting of a component."""
    key, section = ".".join(map(str, path)), [str(part) for part in path[:-1]]
    shown = "" if isinstance(value, Mapping) else f" = {_shown(value)}"
    if holder := holder_missing([*section, str(path[-1])], written):
        needed, named = holder
        message = (
            f"{key}{shown} must go with {needed}, found {named!r}: remove it, or choose that one."
        )
        return Problem(message, key, value, needed)
    prefix = "".join(f"{part}." for part in section)
    inside = (k.removeprefix(prefix) for k in settings_by_key() if k.startswith(prefix))
    own = known_settings(section, _named_at(section, written)) or ()
    known = sorted({*own, *(name.partition(".")[0] for name in inside)})
    meant = _name_meant(path, known)
    remedy = f"take one of {', '.join(known)}." if known else "correct or remove it."
    remedy = f"do you mean {meant}?" if meant else remedy
    message = f"A setting must have a known name, found {key!r}{shown}: {remedy}"
    return Problem(message, key, _sayable(value), "the name of a setting", meant)


def holder_missing(path: Sequence[str], written: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return which components have a setting, and the one that is named, which does not.

    None where that one has it, or none has.
    """
    *section, key = path
    kind = kind_at(section)
    if not kind:
        return None
    named = _named_at(section, written) or (default_of(kind) or "")
    owners = [n for n, fields in settings_of_kind(kind).items() if key in fields]
    if not owners or named in owners or key in (known_settings(section, named) or ()):
        return None
    holder = f"{'.'.join(section)}{'.name' if len(section) == 1 else ''}"
    return f"{holder} = {' or '.join(map(repr, owners))}", named


def _named_at(section: Sequence[str], written: Mapping[str, Any]) -> str:
    """Return the name of the component at a place in settings as they were written."""
    inner: Any = written
    for part in section:
        inner = inner.get(part, {}) if isinstance(inner, Mapping) else {}
    name = inner.get("name", "") if isinstance(inner, Mapping) else inner
    return name if isinstance(name, str) else getattr(name, "name", "")


def _name_meant(path: Path, known: Sequence[str]) -> str | None:
    """Return the whole name nearest to an unknown one: there, else in any section."""
    *above, name = map(str, path)
    inside = len(path) > 2  # a group of clients, whose names are its own
    elsewhere = {} if inside else {s.name: s.key for s in reversed(settings())}
    if name in elsewhere:
        return elsewhere[name]
    if near := nearest(name, known):
        return ".".join([*above, near])
    near = nearest(name, elsewhere, 0.8)
    return elsewhere[near] if near else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _sayable(value: object) -> object:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value
