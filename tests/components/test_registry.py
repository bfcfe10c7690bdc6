"""From names to components and back, and what is said where there is none."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import Field

from covey import ClusterSelection, Component, ConfigError, SelectionInputs
from covey.algorithms.selection import OwnSelection
from covey.base import component_names as names
from covey.base.built_ins import MODULES, built_ins
from covey.base.component_names import find, is_known, known_names
from covey.base.components import create, reference
from plugins.cautious import Cautious

MINE = "plugins.cautious:Cautious"
EVERY = [(kind, name) for kind in MODULES for name in built_ins(kind)]


class Tried(ClusterSelection):
    """A selection with options of every sort."""

    margin: Annotated[float, Field(ge=0)] = 0.5
    rounds: int
    names: tuple[str, ...] = ()

    class Inside(ClusterSelection):
        """Found by a dotted name."""


def told(asked: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as error:
        asked()
    return str(error.value)


def said(asked: Callable[[], object], *parts: str) -> None:
    message = told(asked)
    assert [part for part in parts if part not in message] == []


def selection(name: str, **options: object) -> Any:
    return create("selection", {"name": name, **options}, "method.selection", ClusterSelection)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_built_in_is_there_under_its_name(kind, name):
    found = find(kind, name, "section.key")
    assert is_known(kind, name)
    assert name in known_names(kind)
    assert found.__doc__
    if not (isinstance(found, type) and issubclass(found, Component)):
        return
    try:
        made = found()
    except ConfigError:
        return  # it has options without defaults
    assert reference(made) == name
    assert made.own_settings() == {}


def test_an_unknown_name_is_refused_with_the_names_there_are():
    said(
        lambda: find("algorithm", "fedagv", "method.name"),
        "method.name must be one of fedavg, ",
        "or package.module:name, found 'fedagv'",
        "do you mean 'fedavg'?",
    )
    assert "do you mean" not in told(lambda: find("algorithm", "xyz", "method.name"))
    assert not is_known("algorithm", "fedagv")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("no.such.module:Thing", "No module named 'no'"),
        ("plugins.cautious:Cautious.deeper", "deeper"),
    ],
)
def test_what_cannot_be_imported_is_refused(name, part):
    failed = f"method.selection must name what can be imported, found {name!r} ("
    said(lambda: selection(name), failed, part)


def test_what_is_no_component_of_the_kind_is_refused():
    said(lambda: selection(f"{__name__}:EVERY"), "must be a class or function, found list")
    said(
        lambda: selection("covey.algorithms.fedavg:FedAvg"),
        "must be a covey.ClusterSelection",
        "found FedAvg",
        "derive it from covey.ClusterSelection",
    )
    assert find("selection", f"{__name__}:Tried.Inside", "key") is Tried.Inside


def own_selection(inputs: SelectionInputs, scale: int = 1):
    return (inputs.losses * scale).argmin(1)


def test_a_function_is_a_component_with_its_keywords():
    by_loss = f"{own_selection.__module__}:own_selection"
    plain, bound = selection(by_loss), selection(by_loss, scale=2)
    assert isinstance(bound, OwnSelection)
    assert plain.call is own_selection
    assert (bound.function, bound.own_settings()) == (own_selection, {"scale": 2})
    assert bound.name == by_loss
    assert selection(by_loss, scale=2) == bound != plain
    given: Any = partial(own_selection, scale=2)  # pyright: ignore
    same = create("selection", given, "key", ClusterSelection)
    assert same == bound


def test_an_installed_plugin_is_found_by_its_entry_point(monkeypatch):
    installed = {"selection.cautious": MINE, "algorithm.else": "somewhere:Else"}
    monkeypatch.setattr(names, "_installed", lambda: installed)
    assert known_names("selection")[-1] == "cautious"
    assert is_known("selection", "cautious")
    assert not is_known("selection", "else")
    names._installed_names.cache_clear()
    made = selection("cautious", margin=0.1)
    assert made == Cautious(margin=0.1)
    assert reference(made) == "cautious"
    monkeypatch.undo()
    names._installed_names.cache_clear()


def test_what_no_import_finds_is_found_as_long_as_the_process_lives():
    class Local(ClusterSelection):
        margin: float = 0.0

    name = reference(Local(margin=2.0))
    assert name == "python:Local"
    assert selection(name, margin=2.0) == Local(margin=2.0)
    assert reference(Local()) == name
    one, other = (lambda inputs, by=by: inputs + by for by in (1, 2))
    for each in (one, other):  # two of one name are two
        assert reference(each).startswith("python:")
        assert selection(reference(each)).function == each
    said(lambda: selection("python:gone"), "what can be imported", "from its program")
