"""What components keep: through JSON and tensors, and without whoever left."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey import ComponentState, ConfigError, Params, States, get_state, with_state
from covey.base.component_state import decoded, encoded, without
from covey.base.names import Handle


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
    found, named = encoded(states)
    written = json.dumps(found, allow_nan=False)
    return decoded(json.loads(written), named)


def plain(value: Any) -> Any:
    """Return a tree whose equality is that of types and leaves."""
    match value:
        case Tensor():
            return Tensor, value.dtype, value.tolist()
        case ComponentState():
            return type(value), plain(dict(value))
        case Mapping():
            return {key: plain(each) for key, each in value.items()}
        case tuple() | list():
            return type(value), [plain(each) for each in value]
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
    found, named = encoded(left)
    assert '"A"' not in json.dumps(found)
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
