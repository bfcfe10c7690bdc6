"""The public names of `covey`, a page per room, those of companions, and the events of a run."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import covey
from covey.base import events
from covey_site.markdown import hidden_tree, with_autodoc

VERSION = "__version__"
COMPANIONS: Mapping[str, tuple[str, ...]] = {"covey_desk": ("answer_requests", "write_packs")}
"""Public names of companions, but for what entry points name."""
FOLDER = "reference/python"


def python_pages() -> Mapping[str, str]:
    """Return the pages by their addresses."""
    packages = {f"{FOLDER}/{name}": _package(name) for name in _by_package()}
    packages |= {f"{FOLDER}/{name}": _companion(name) for name in COMPANIONS}
    return {f"{FOLDER}/index": _index(), **packages, "reference/events": _events()}


@cache
def _by_package() -> Mapping[str, list[str]]:
    """Return the public names by the room that each comes from, as the stub says."""
    stub = Path(str(covey.__file__)).with_suffix(".pyi")
    found: dict[str, list[str]] = {}
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            room = str(node.module).partition(".")[0]
            found.setdefault(room, []).extend(
                each.name for each in node.names if each.name != VERSION
            )
    return {name: public for name, public in found.items() if public}


def _index() -> str:
    rows = [
        f"| [`{package}`]({package}.md) | {', '.join(f'`{n}`' for n in names)} |"
        for package, names in _by_package().items()
    ]
    return "\n".join(
        [
            "# Public names",
            "",
            f"Everything that `import covey` offers in version {covey.__version__} "
            f"(`covey.__version__`), from the docstrings. "
            "How to use it: [runs](../../guides/runs.md).",
            "",
            "| room | names |",
            "|---|---|",
            *rows,
            "",
            "Companions, which are installed with it: "
            + ", ".join(f"[`{name}`]({name}.md)" for name in COMPANIONS)
            + ".",
            "",
            hidden_tree(f"{FOLDER}/{package}" for package in (*_by_package(), *COMPANIONS)),
        ]
    )


def _package(package: str) -> str:
    names = _by_package()[package]
    lines = [line for name in names for line in _documented(name)]
    said = (import_module(f"covey.{package}").__doc__ or "").splitlines()[0]
    return f"# Names of `{package}`\n\n{said}\n\n{with_autodoc(lines)}\n"


def _companion(package: str) -> str:
    found = import_module(package)
    lines = [line for name in COMPANIONS[package] for line in _documented(name, found)]
    said = (found.__doc__ or "").splitlines()[0]
    return f"# Names of `{package}`\n\n{said}\n\n{with_autodoc(lines)}\n"


def _documented(name: str, of: ModuleType = covey) -> Iterator[str]:
    """Return what asks Sphinx for one name."""
    value, whole = getattr(of, name), f"{of.__name__}.{name}"
    if inspect.isclass(value):
        yield from (f".. autoclass:: {whole}", "   :members:", "")
    elif inspect.isroutine(value):
        yield from (f".. autofunction:: {whole}", "")
    else:  # an alias of a type, whose docstring only its own module has
        yield from (f".. py:data:: {whole}", f"   :value: {value}", "")


def _events() -> str:
    kinds = [
        name
        for name, value in vars(events).items()
        if inspect.isclass(value) and issubclass(value, events.Event)
    ]
    lines = [line for name in kinds for line in (f".. autoclass:: {name}", "")]
    said = inspect.getdoc(events) or ""
    block = with_autodoc([".. currentmodule:: covey.base.events", "", *lines])
    return f"# Events\n\n{said}\n\nA ledger names an event by its class.\n\n{block}\n"
