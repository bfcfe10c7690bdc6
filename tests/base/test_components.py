"""From names to components and back, what they keep, and functions found by name."""

import functools
import importlib
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from torch import Tensor, nn

from covey import (
    ClusterSelection,
    Component,
    ComponentState,
    ConfigError,
    Params,
    SelectionInputs,
    States,
    get_state,
    with_state,
)
from covey.algorithms.selection import OwnSelection
from covey.api.parts import reference_of
from covey.base import component_names as names
from covey.base.built_ins import MODULES, built_ins
from covey.base.component_names import find, is_known, known_names
from covey.base.component_state import decoded, encoded, without
from covey.base.components import create, reference
from covey.base.names import Handle
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


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as error:
        call()
    return str(error.value)


def said(call: Callable[[], object], *parts: str) -> None:
    message = message_of(call)
    assert [part for part in parts if part not in message] == []


def selection(name: str, **options: object) -> Any:
    return create("selection", {"name": name, **options}, "method.selection", ClusterSelection)


def test_every_built_in_is_there_under_its_name():
    for kind, name in EVERY:
        component = find(kind, name, "section.key")
        assert is_known(kind, name)
        assert name in known_names(kind)
        assert component.__doc__
        if isinstance(component, type) and issubclass(component, Component):
            with suppress(ConfigError):  # it has options without defaults
                made = component()
                assert reference(made) == name
                assert made.own_settings() == {}


def test_an_unknown_name_is_refused_with_the_names_there_are():
    said(
        lambda: find("algorithm", "fedagv", "method.name"),
        "method.name must be one of fedavg, ",
        "or package.module:name, found 'fedagv'",
        "do you mean 'fedavg'?",
    )
    assert "do you mean" not in message_of(lambda: find("algorithm", "xyz", "method.name"))
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
    own: Any = partial(own_selection, scale=2)  # pyright: ignore
    same = create("selection", own, "key", ClusterSelection)
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
    for component in (one, other):  # two of one name are two
        assert reference(component).startswith("python:")
        assert selection(reference(component)).function == component
    said(lambda: selection("python:gone"), "what can be imported", "from its program")


class Point(NamedTuple):
    x: float
    place: str | None


@dataclass(frozen=True, slots=True)
class Inner:
    count: int
    weights: Mapping[str, Tensor]
    points: tuple[Point, ...]


class Everything(ComponentState):
    number: float = 0.0
    word: str = ""
    flag: bool = False
    nothing: int | None = None
    tensor: Tensor | None = None
    models: tuple[Params, ...] = ()
    names: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()
    by_index: Mapping[int, float] = {}
    by_client: Mapping[Handle, Params] = {}
    known: Mapping[Handle, tuple[Point | None, ...]] = {}
    inner: tuple[Inner, ...] = ()


class Other(ComponentState):
    key = "other"
    members: tuple[frozenset[Handle], ...] = ()
    rounds: tuple[Mapping[Handle, int], ...] = ()


words = st.text(max_size=5)
handles = st.sampled_from("ABCD")
numbers = st.floats(allow_nan=False)
tensors = st.one_of(
    st.lists(st.floats(width=32, allow_nan=False), max_size=4).map(torch.tensor),
    st.integers(-(2**62), 2**62).map(torch.tensor),
    st.booleans().map(torch.tensor),
)
models = st.dictionaries(words, tensors, max_size=3)
points = st.builds(Point, numbers, st.none() | words)
inner = st.builds(Inner, st.integers(), models, st.lists(points, max_size=2).map(tuple))
everything = st.builds(
    Everything,
    number=numbers,
    word=words,
    flag=st.booleans(),
    nothing=st.none() | st.integers(),
    tensor=st.none() | tensors,
    models=st.lists(models, max_size=2).map(tuple),
    names=st.frozensets(words, max_size=3),
    numbers=st.frozensets(st.integers(), max_size=3),
    by_index=st.dictionaries(st.integers(), numbers, max_size=3),
    by_client=st.dictionaries(handles, models),
    known=st.dictionaries(handles, st.lists(st.none() | points, max_size=2).map(tuple)),
    inner=st.lists(inner, max_size=2).map(tuple),
)


def through_a_checkpoint(states: States) -> States:
    document, named = encoded(states)
    written = json.dumps(document, allow_nan=False)
    return decoded(json.loads(written), named)


def plain(value: Any) -> Any:
    """Return a tree whose equality is that of types and leaves."""
    match value:
        case Tensor():
            return Tensor, value.dtype, value.tolist()
        case ComponentState():
            return type(value), plain(dict(value))
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case tuple() | list():
            return type(value), [plain(item) for item in value]
    inner = fields(value) if is_dataclass(value) else ()
    return type(value), [plain(getattr(value, f.name)) for f in inner] or value


@given(everything)
def test_a_state_comes_through_a_checkpoint_as_it_was(state):
    again = through_a_checkpoint(with_state({}, state))
    assert plain(get_state(again, Everything)) == plain(state)
    # what nobody asked for in between comes through the next one too
    assert plain(get_state(through_a_checkpoint(again), Everything)) == plain(state)


def with_leavers() -> States:
    """Client A is in every corner, B beside it."""
    w = {"w": torch.ones(1)}
    point = Point(0.5, "here")
    state = Everything(
        names=frozenset({"A", "B"}),
        by_client={"A": w, "B": w},
        known={"A": (point, None), "B": (None, point)},
        inner=(Inner(1, {"A": torch.ones(1), "B": torch.zeros(1)}, (point,)),),
    )
    other = Other(
        members=(frozenset({"A"}), frozenset({"B", "A"})), rounds=({"A": 1, "B": 2}, {"A": 3})
    )
    return with_state(with_state({}, state), other)


@pytest.mark.parametrize(
    "seen", [lambda states: states, through_a_checkpoint], ids=["kept", "loaded"]
)
def test_whoever_leaves_is_nowhere_any_more(seen):
    left = without(seen(with_leavers()), {"A"})
    document, named = encoded(left)
    assert '"A"' not in json.dumps(document)
    assert len(named) == 2  # B's model, and B's entry in what is inside
    state, other = get_state(left, Everything), get_state(left, Other)
    assert state.names == {"B"}
    assert set(state.by_client) == {"B"}
    assert state.known == {"B": (None, Point(0.5, "here"))}
    assert set(state.inner[0].weights) == {"B"}
    assert state.inner[0].points == (Point(0.5, "here"),)
    assert other == Other(members=(frozenset(), frozenset({"B"})), rounds=({"B": 2}, {}))


@given(everything, st.sets(handles))
def test_nothing_else_is_taken_away(state, gone):
    state = state.model_copy(update={"names": frozenset(), "word": "a word"})
    after = get_state(without(with_state({}, state), gone), Everything)
    assert set(after.by_client) == set(state.by_client) - gone
    assert set(after.known) == set(state.known) - gone
    same = {key: getattr(state, key) for key in ("by_client", "known", "inner", "models")}
    assert plain(after.model_copy(update=same)) == plain(state)


class Odd(ComponentState):
    value: Any = None


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ({("A", 1): 2.0}, ("words or whole numbers", "('A', 1)", "change it")),
        (np.ones(2), ("found a ndarray", "Odd", "tensors, numbers, words")),
        (object(), ("found a object", "keep it as one")),
    ],
)
def test_what_no_checkpoint_can_hold_is_refused(value, parts):
    with pytest.raises(ConfigError) as error:
        encoded(with_state({}, Odd(value=value)))
    assert all(part in str(error.value) for part in parts)


class SameKey(ComponentState):
    key = "other"


def test_two_kinds_of_states_under_one_key_are_refused():
    states = with_state({}, Other())
    for clash in (lambda: with_state(states, SameKey()), lambda: get_state(states, SameKey)):
        with pytest.raises(ConfigError, match=r"'other' of .*:Other and .*:SameKey"):
            clash()
    assert get_state(with_state(states, Other()), Other) == Other()


SOURCE = """
def make():
    return 1

def sized(shape, classes):
    return 2

class Net:
    def build(self):
        return make()

renamed = make
hidden = lambda: 3
"""


@pytest.fixture
def toolbox(tmp_path, monkeypatch):
    """A package with a module, on the search path."""
    (tmp_path / "toolbox_of_tests").mkdir()
    (tmp_path / "toolbox_of_tests" / "__init__.py").write_text("")
    (tmp_path / "toolbox_of_tests" / "models.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("toolbox_of_tests.models")
    for name in ("toolbox_of_tests.models", "toolbox_of_tests"):
        sys.modules.pop(name, None)


def test_functions_and_classes_of_a_module_are_found(toolbox):
    assert reference_of(toolbox.make) == "toolbox_of_tests.models:make"
    assert reference_of(toolbox.renamed) == "toolbox_of_tests.models:make"
    assert reference_of(toolbox.Net) == "toolbox_of_tests.models:Net"
    assert reference_of(json.loads) is None  # Python's own is no part of a run


def test_what_import_would_not_give_back_has_no_name(toolbox):
    def inner() -> None: ...

    nameless = (
        None,
        inner,
        lambda: None,
        toolbox.hidden,
        toolbox.Net().build,
        toolbox.Net.build,
        functools.partial(toolbox.make),
        nn.Linear(1, 1),
        OrderedDict(),
    )
    assert [reference_of(component) for component in nameless] == [None] * len(nameless)


def test_a_started_script_has_no_name(toolbox, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", toolbox)
    monkeypatch.setattr(toolbox.make, "__module__", "__main__")
    assert reference_of(toolbox.make) is None
