"""From a name in the settings to a component: built in, installed, or a user's own.

A name is one of `BUILT_INS`, or that of an installed plug-in (an entry point
`KIND.NAME` of the group `covey.components`), or `package.module:name`. A program passes
the component itself, and `reference` returns the name under which it is recorded.
"""

import importlib
import inspect
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import entry_points
from itertools import count
from types import FunctionType
from typing import Any

from pydantic import ValidationError

from covey.components.built_ins import BUILT_INS
from covey.components.component import Component
from covey.components.foreign_code import check_import
from covey.components.own_source import source_hash
from covey.errors import ConfigError

__all__ = [
    "create",
    "find",
    "is_built_in",
    "is_known",
    "is_missing",
    "known_names",
    "options_of",
    "pass_again",
    "reference",
]

GROUP = "covey.components"

PASSED = "python:"
"""How names begin of what no import can find."""

_passed: dict[str, object] = {}
"""Components that a program passed and that no import can find again, by name."""


@cache
def _installed() -> Mapping[str, str]:
    """Return every installed plug-in, `kind.name` to `package.module:name`."""
    return {each.name: each.value for each in entry_points(group=GROUP)}


@cache
def _beside_covey() -> frozenset[str]:
    """Return those of them that are installed with covey itself, as `kind.name`."""
    points = entry_points(group=GROUP)
    return frozenset(p.name for p in points if p.dist and p.dist.name == "covey")


def is_built_in(kind: str, name: str) -> bool:
    """Say whether covey itself brings this component, or a package installed with it."""
    return name in BUILT_INS[kind] or f"{kind}.{name}" in _beside_covey()


def known_names(kind: str) -> tuple[str, ...]:
    """Return the names of all built-in and installed components of a kind."""
    prefix = f"{kind}."
    plugins = (n.removeprefix(prefix) for n in _installed() if n.startswith(prefix))
    return (*BUILT_INS[kind], *sorted(plugins))


def is_known(kind: str, name: str) -> bool:
    """Say whether this can be a component's name; nothing is imported for it."""
    return ":" in name or name in known_names(kind)


def find(kind: str, name: str, key: str) -> Any:  # noqa: ANN401 - a class, or a function
    """Return the class or the function of this name.

    Args:
        kind: one of `BUILT_INS`.
        name: as the settings have it.
        key: the setting, for messages.

    Raises:
        ConfigError: there is none, or importing it failed.
    """
    if name in _passed:
        return _passed[name]
    built_in = BUILT_INS[kind].get(name)
    path = built_in.path if built_in else _installed().get(f"{kind}.{name}", name)
    if path == name and ":" in name and not name.startswith("covey."):
        check_import(key, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        near = get_close_matches(name, known_names(kind), n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"{key} must be one of {', '.join(known_names(kind))} or "
            f"package.module:name, found {name!r}. {meant}Change the value."
        )
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module of somebody's may raise anything
        raise ConfigError(
            f"{key} = {name!r} must name a component as package.module:name, but "
            f"importing it failed: {error}. Check the spelling and PYTHONPATH, or pass "
            f"it from the program that has it."
        ) from error
    if not callable(found):
        raise ConfigError(
            f"{key} = {name!r} must name a class or a function, found a "
            f"{type(found).__name__}. Name one of those."
        )
    return found


def create(
    kind: str,
    name: str,
    options: Mapping[str, object],
    key: str,
    base: type[Component],
) -> Any:  # noqa: ANN401 - a component of the kind, or a user's function
    """Return a component with these options, or a user's function with them bound.

    Raises:
        ConfigError: there is none of this name, it is of another kind, or it does not
            have such options.
    """
    found = find(kind, name, key)
    if not inspect.isclass(found):
        return partial(found, **options) if options else found
    if not issubclass(found, base):
        raise ConfigError(
            f"{key} = {name!r} must be a {base.__name__}, found the class "
            f"{found.__name__}. Derive it from covey.{base.__name__}."
        )
    try:
        return found.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(_wrong_options(found, error, f"{key} = {name!r}")) from None


def _wrong_options(found: type[Component], error: ValidationError, part: str) -> str:
    """Return what is wrong with a component's options, all at once."""
    errors = error.errors()
    own = [
        str(each.get("ctx", {}).get("error"))
        for each in errors
        if each["type"] == "value_error"
    ]
    if len(own) == len(errors):  # a component's own sentences
        return f"{part}: {' '.join(own)}"
    known = ", ".join(found.model_fields) or "none"
    told = "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'together'}: {each['msg']}, found "
        f"{each['input']!r}"
        for each in errors
    )
    return f"The options of {part} are not possible: {told}. Its options are: {known}."


def options_of(component: object) -> dict[str, Any]:
    """Return a component's options as TOML has them, without those at their defaults."""
    if isinstance(component, Component):
        return component.model_dump(mode="json", exclude_defaults=True)
    if isinstance(component, partial):
        return dict(component.keywords)
    return {}


def reference(component: object) -> str:
    """Return the name under which a component that a program passes is recorded.

    `package.module:name` where an import finds it again; else `python:name`, which is
    found as long as this process lives.
    """
    maker: Any = component.func if isinstance(component, partial) else component
    if isinstance(component, Component):
        maker = type(component)
        known = _name_of(f"{maker.__module__}:{maker.__qualname__}")
        if known:
            return known
    qualname = getattr(maker, "__qualname__", type(maker).__qualname__)
    module = getattr(maker, "__module__", "")
    if module != "__main__" and _imported(module, qualname) == maker:
        return f"{module}:{qualname}"
    word = f"{PASSED}{qualname.rpartition('.')[2].strip('<>')}"
    names = (word if n == 1 else f"{word}_{n}" for n in count(1))
    name = next(n for n in names if _is_same(_passed.setdefault(n, maker), maker))
    _passed[name] = maker
    return name


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - as they were passed
    """Say whether two parts are one: a notebook's cell that ran twice made two of it.

    Two that were made inside of a function may differ in what they close over.
    """
    if one == other or not all(_is_top_level(each) for each in (one, other)):
        return one == other
    source = source_hash(one)
    return source != "" and source == source_hash(other)


def _is_top_level(made: object) -> bool:
    name = made.__qualname__ if isinstance(made, (type, FunctionType)) else ""
    return bool(name) and "<" not in name


def is_missing(name: str) -> bool:
    """Say whether a name is of a part that a program passed, and that is not here."""
    return name.startswith(PASSED) and name not in _passed


def pass_again(recorded: str, name: str) -> None:
    """Let a part be found under the name by which a run recorded it.

    Args:
        recorded: that name.
        name: the part's now, as `reference` returned it.
    """
    if recorded.startswith(PASSED) and name in _passed:
        _passed[recorded] = _passed[name]


def _imported(module: str, qualname: str) -> object:
    """Return what an import finds under this name; None: nothing."""
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _name_of(path: str) -> str:
    """Return the name of what is built in or installed and stands here; "": it has none."""
    for names in BUILT_INS.values():
        for name, built_in in names.items():
            if built_in.path == path:
                return name
    named = (name for name, value in _installed().items() if value == path)
    return next(named, "").partition(".")[2]
