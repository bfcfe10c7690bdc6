"""Components by their names: how one is found, and what those of a kind say of themselves.

A component is built in, installed, imported, or passed by a program. Its docstring has its
settings, in words; they are a JSON schema, too.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from covey.base.built_ins import built_in_name, built_ins, default_of
from covey.base.errors import ConfigError
from covey.base.names import unknown
from covey.base.own_code import CodeSource, check_import, no_part

GROUP = "covey.components"
PASSED = "python:"
"""How names begin of what no import can find."""

passed: dict[str, object] = {}
"""Components that a program passed and that no import can find again, by name."""


@cache
def _installed() -> Mapping[str, str]:
    """Return every installed plug-in, `kind.name` to `package.module:name`."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


@cache
def coveys_packages() -> frozenset[str]:
    """Return the packages that are covey's, or installed with it: they are no user's own."""
    points = entry_points(group=GROUP)
    return frozenset(
        {"covey"}
        | {p.module.partition(".")[0] for p in points if p.dist and p.dist.name == "covey"}
    )


def known_names(kind: str) -> tuple[str, ...]:
    """Return the names of all built-in and installed components of a kind."""
    prefix = f"{kind}."
    plugins = (n.removeprefix(prefix) for n in _installed() if n.startswith(prefix))
    return (*built_ins(kind), *sorted(plugins))


def is_known(kind: str, name: str) -> bool:
    """Say whether this can be a component's name; nobody's own code is imported for it."""
    of_torch = kind == "optimizer" and name[:1].isupper()
    return ":" in name or of_torch or name in known_names(kind)


def find(kind: str, name: str, key: str) -> Any:  # noqa: ANN401 - a class, or a function
    """Return the class or the function of this name.

    Args:
        kind: one of `MODULES`.
        name: as the settings have it; of an optimizer also that of a class of torch.optim.
        key: the setting, for messages.

    Raises:
        ConfigError: there is none, it is not made to be a part of a run, or importing it failed.
    """
    if name in passed:
        return passed[name]
    if built_in := built_ins(kind).get(name):
        return built_in
    path = _installed().get(f"{kind}.{name}", name)
    of_torch = name.removeprefix("torch.optim:")
    if kind == "optimizer" and of_torch.isidentifier() and of_torch[0].isupper():
        return named_object(key, name, f"torch.optim:{of_torch}")
    if path != name:
        return named_object(key, name, path)
    if ":" not in path:
        raise ConfigError(unknown(key, name, known_names(kind), "package.module:name"))
    if _top(name) not in coveys_packages():
        check_import(key, name)
    component = named_object(key, name, path)
    _check_part(key, name, component)
    return component


def named_object(key: str, name: str, path: str) -> Any:  # noqa: ANN401 - a class, or a function
    """Return what an import of `package.module:name` finds.

    Args:
        key: the setting, for messages.
        name: what stands there.
        path: what that stands for.

    Raises:
        ConfigError: importing it failed, or it cannot be called.
    """
    module, _, attribute = path.partition(":")
    try:
        component: Any = importlib.import_module(module)
        for part in attribute.split("."):
            component = getattr(component, part)
    except Exception as error:  # a module of somebody's may raise anything
        raise ConfigError(
            f"{key} must name what can be imported, found {name!r} ({error}): correct it, start "
            f"covey in the module's folder, put that in PYTHONPATH, or pass it from its program."
        ) from error
    if not callable(component):
        kind = type(component).__name__
        raise ConfigError(f"{key} = {name!r} must be a class or function, found {kind}: name one.")
    return component


def _check_part(key: str, name: str, component: object) -> None:
    """Refuse what a module of somebody's has, and what is not made to be a part of a run."""
    if is_derived(component):
        return
    home = home_of(component) or _top(name)
    if home != _top(name) and home not in coveys_packages():
        check_import(key, f"{home}:{name.partition(':')[2]}")
    if not may_be_part(home):
        raise no_part(key, name, f"of {home}")


def home_of(component: object) -> str:
    """Return the package in which a class or a function was written; "": it is neither."""
    maker = component.func if isinstance(component, partial) else component
    if not hasattr(maker, "__qualname__"):
        return ""
    return _top(getattr(maker, "__module__", None) or "builtins")


def may_be_part(package: str) -> bool:
    """Say whether what a package has may be a part of a run, if it is not derived from covey's.

    What is Python's own may not, nor what is installed without being made for covey.
    """
    declared = {_top(path) for path in _installed().values()}
    if package in coveys_packages() or package in sys.stdlib_module_names:
        return False
    source = CodeSource.of_package(package)
    return package in declared or source is None or not source.is_installed


def is_derived(component: object) -> bool:
    """Say whether it is a class derived from one of covey's."""
    bases = component.__mro__ if isinstance(component, type) else ()
    roots = ((base.__module__, base.__qualname__) for base in bases)
    return ("covey.base.components", "Component") in roots


def _top(path: str) -> str:
    return path.partition(":")[0].partition(".")[0]


def is_missing(name: str) -> bool:
    """Say whether a name is of a part that a program passed, and that is not here."""
    return name.startswith(PASSED) and name not in passed


def pass_again(recorded: str, name: str) -> None:
    """Let a part be found under the name by which a run recorded it.

    Args:
        recorded: that name.
        name: the part's now, as `reference` returned it.
    """
    if recorded.startswith(PASSED) and name in passed:
        passed[recorded] = passed[name]


def imported(module: str, qualname: str) -> object:
    """Return what an import finds under this name, of what is loaded; None: nothing."""
    value: object = sys.modules.get(module)
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return value


def recorded_name(maker: object) -> str | None:
    """Return the name of a class or a function that is built in or installed; None: it is not."""
    path = f"{getattr(maker, '__module__', '')}:{getattr(maker, '__qualname__', '')}"
    return built_in_name(maker) or _installed_names().get(path)


@cache
def _installed_names() -> Mapping[str, str]:
    return {path: name.partition(".")[2] for name, path in _installed().items()}


@cache
def described_in(cls: type) -> Mapping[str, str]:
    """Return what docstrings say of attributes by name, those of the classes above too."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(base.__doc__ or "")
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
    for name, cls in built_ins(kind).items():
        paragraph = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0]
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
    default = {"default": default_of(kind)} if default_of(kind) else {}
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
    for name, cls in built_ins(kind).items():
        if issubclass(cls, BaseModel):
            by_name[name] = cls.model_json_schema().get("properties", {})
    return by_name
