"""The public names of `covey`, a page per room, those of companions, and the events of a run."""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

import covey
from covey.base import events
from covey.base.component_names import described_in
from covey.settings.reference import in_words
from covey_site.markdown import escaped, hidden_tree, with_autodoc

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
        f"| {{py:obj}}`{name} <covey.{name}>` | [`{package}`]({package}.md) | {_summary(name)} |"
        for package, names in _by_package().items()
        for name in sorted(names, key=str.lower)
    ]
    return "\n".join(
        [
            "# Public names",
            "",
            f"Everything that `import covey` offers in version {covey.__version__} "
            f"(`covey.__version__`), from the docstrings. "
            "How to use it: [runs](../../guides/runs.md).",
            "",
            "| name | room | what it is |",
            "|---|---|---|",
            *rows,
            "",
            "Companions, which are installed with it: "
            + ", ".join(f"[`{name}`]({name}.md)" for name in COMPANIONS)
            + ".",
            "",
            hidden_tree(f"{FOLDER}/{package}" for package in (*_by_package(), *COMPANIONS)),
        ]
    )


def _summary(name: str) -> str:
    """Return the first sentence of a docstring; "": it is an alias, which has none."""
    value = getattr(covey, name)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return ""
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return escaped(" ".join(paragraph.split()))


def _package(package: str) -> str:
    return _page(package, import_module(f"covey.{package}"), _by_package()[package], covey)


def _companion(package: str) -> str:
    companion = import_module(package)
    return _page(package, companion, COMPANIONS[package], companion)


def _page(package: str, described: ModuleType, names: Iterable[str], of: ModuleType) -> str:
    said = (described.__doc__ or "").splitlines()[0]
    parts = [part for name in names for part in _documented(name, of)]
    return "\n\n".join([f"# Names of `{package}`", said, *parts]) + "\n"


def _documented(name: str, of: ModuleType) -> Iterator[str]:
    """Yield what asks Sphinx for one name, and a table of its settings, if it has some."""
    value, whole = getattr(of, name), f"{of.__name__}.{name}"
    if inspect.isclass(value):
        yield with_autodoc([f".. autoclass:: {whole}", "   :members:"])
        if issubclass(value, BaseModel) and value is not covey.Config and value.model_fields:
            yield _settings_table(name, value)
    elif inspect.isroutine(value):
        yield with_autodoc([f".. autofunction:: {whole}"])
    else:  # an alias of a type, whose docstring only its own module has
        yield with_autodoc([f".. py:data:: {whole}", f"   :value: {value}"])


def _settings_table(name: str, cls: type[BaseModel]) -> str:
    """Return the settings of a component: default, range and meaning of each."""
    specs, meanings = cls.model_json_schema()["properties"], described_in(cls)
    rows = [
        f"| `{key}` | `{field.default!r}` | {_allowed(field.default, specs[key])} "
        f"| {escaped(meanings.get(key, ''))} |"
        for key, field in cls.model_fields.items()
    ]
    head = [f"Settings of `{name}`:", "", "| setting | default | allowed | meaning |"]
    return "\n".join([*head, "|---|---|---|---|", *rows])


def _allowed(default: object, spec: Mapping[str, object]) -> str:
    return "a component" if isinstance(default, BaseModel) else escaped(in_words(spec))


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
