"""What a component keeps from one round to the next, and how it comes through a crash.

A checkpoint saves all of it without knowing any of it: numbers, words and collections as
JSON, tensors beside them.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from operator import is_
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError, to_jsonable_python
from torch import Tensor

from covey.base.errors import ConfigError
from covey.base.names import Handle

S = TypeVar("S", bound="ComponentState")
K = TypeVar("K")
V = TypeVar("V")

TENSOR, NUMBER = "$tensor", "$number"
"""Stand for a tensor, and for a number that JSON does not have."""


LEAVES = (int, float, str, Tensor)

NUMBERS = frozenset({int, float, bool})
"""Rows of these alone hold no client, and are nearly all that there is of many clients."""

FINITE = frozenset({int, str, bool})
"""Rows of these alone are in JSON what they are."""


class ComponentState(BaseModel):
    """A component's own state: frozen, with a default for every field.

    Fields are tensors, numbers, words, other frozen records, and tuples, sets and mappings
    of them. What is kept on a client stands under the client's handle, in a mapping or a
    set: a client that leaves is taken out of all of them. Once it is kept, every mapping in it is
    in the order of its keys as text, in whatever order it was filled; a set is in none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    key: ClassVar[str] = ""
    """The name in a checkpoint, wherever the class lies; else the class's own."""


States = Mapping[str, object]
"""What all components keep, by key: a state, or what a checkpoint holds of one."""


def _key(kind: type[ComponentState]) -> str:
    return kind.key or _own_name(kind)


def _own_name(kind: type[ComponentState]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def get_state(states: States, kind: type[S]) -> S:
    """Return a component's state; before it has any, the one of defaults.

    Raises:
        ConfigError: what is kept under its key is another component's.
    """
    state = states.get(_key(kind))
    if state is None:
        return kind()
    _check_alone(state, kind)
    return state if isinstance(state, kind) else kind.model_validate(state)


def with_state(states: States, state: ComponentState) -> States:
    """Return the states, this one among them, with its mappings `in_order`.

    Raises:
        ConfigError: what is kept under its key is another component's.
    """
    key = _key(type(state))
    _check_alone(states.get(key), type(state))
    return {**states, key: _cut(state, frozenset())}


def _check_alone(state: object, kind: type[ComponentState]) -> None:
    """Refuse two classes under one key; one that was loaded anew is still the same."""
    if isinstance(state, kind) or not isinstance(state, ComponentState):
        return
    first, second = _own_name(type(state)), _own_name(kind)
    if first != second:
        raise ConfigError(
            f"States must have different keys, found {kind.key!r} of {first} and {second}: fix one."
        )


def in_order(tree: Mapping[K, V]) -> Mapping[K, V]:
    """Return the mapping in the order of its keys as text, which a checkpoint has too."""
    keys = sorted(tree, key=str)
    return tree if keys == list(tree) else {key: tree[key] for key in keys}


def without(states: States, handles: Collection[Handle]) -> States:
    """Return the states with nothing in them that is kept on these clients.

    They are no key of a mapping any more, and no member of a set or a row.
    """
    gone = frozenset(handles)
    if not gone:
        return states
    return {key: _cut(state, gone) for key, state in states.items()}


def _cut(value: Any, gone: frozenset[Handle]) -> Any:  # noqa: ANN401 - a tree
    """Return a tree without these, its mappings in order; itself where it is so."""
    if isinstance(value, LEAVES) or _is_row_of(NUMBERS, value):
        return value
    if isinstance(value, BaseModel):
        changed = _changed(dict(value), gone)
        return value.model_copy(update=changed) if changed else value
    if is_dataclass(value) and not isinstance(value, type):
        content = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        changed = _changed(content, gone)
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        whole = in_order(cast("Mapping[Any, Any]", value))
        changed = _changed(whole, gone)
        if not changed and gone.isdisjoint(whole):
            return whole
        return {k: changed.get(k, v) for k, v in whole.items() if k not in gone}
    if isinstance(value, (tuple, list, set, frozenset)):
        row = cast("Collection[Any]", value)
        record = hasattr(value, "_fields")
        stay = [x for x in row if record or not isinstance(x, str) or x not in gone]
        cut = [_cut(inner, gone) for inner in stay]
        if len(cut) == len(row) and all(map(is_, cut, stay)):
            return value
        return cast("Any", value)._make(cut) if record else type(value)(cut)
    return value


def _changed(tree: Mapping[Any, Any], gone: frozenset[Handle]) -> dict[Any, Any]:
    """Return the values that are others once they are cut, by key."""
    pairs = ((key, value, _cut(value, gone)) for key, value in tree.items())
    return {key: cut for key, value, cut in pairs if cut is not value}


def _is_row_of(kinds: frozenset[type], value: Any) -> bool:  # noqa: ANN401 - a tree
    return type(value) in (tuple, list) and kinds.issuperset(map(type, value))


def encoded(states: States) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the states as JSON has them, and the tensors in them by name.

    Raises:
        ConfigError: a state holds what no checkpoint can.
    """
    tensors: dict[str, Tensor] = {}
    trees: dict[str, Any] = {}
    for key, state in states.items():
        tree = state.model_dump() if isinstance(state, ComponentState) else state
        trees[key] = _plain(tree, key, tensors)
    return trees, tensors


def _plain(
    value: Any,  # noqa: ANN401
    key: str,
    tensors: dict[str, Tensor],
) -> Any:  # noqa: ANN401
    if type(value) in FINITE:  # nearly all that there is of many clients
        return value
    if _is_row_of(FINITE, value):
        return list(value)
    if isinstance(value, Tensor):
        name = f"state/{key}/{len(tensors)}"
        tensors[name] = value
        return {TENSOR: name}
    if isinstance(value, Mapping):
        tree = cast("Mapping[Any, Any]", value)
        return {_word(k, key): _plain(v, key, tensors) for k, v in tree.items()}
    if isinstance(value, (set, frozenset)):
        value = sorted(cast("Collection[Any]", value))
    if isinstance(value, (tuple, list)):
        return [_plain(v, key, tensors) for v in cast("Collection[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {NUMBER: str(value)}
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        raise ConfigError(
            f"State must be tensors, numbers, words, frozen records or collections of these, found "
            f"a {type(value).__name__} in {key}: keep it as one."
        ) from None


def _word(value: object, key: str) -> str:
    if isinstance(value, (str, int)):
        return str(value)
    raise ConfigError(f"Keys in {key} must be words or whole numbers, found {value!r}: change it.")


def decoded(trees: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> States:
    """Undo `encoded`, up to the classes: `kept` finds these."""

    def whole(value: Any) -> Any:  # noqa: ANN401 - a tree
        if isinstance(value, list):
            row = cast("list[Any]", value)
            plain = _is_row_of(NUMBERS, row)
            return row if plain else [whole(part) for part in row]
        if not isinstance(value, dict):
            return value
        tree = cast("dict[str, Any]", value)
        if TENSOR in tree and len(tree) == 1:
            return tensors[tree[TENSOR]]
        if NUMBER in tree and len(tree) == 1:
            return float(tree[NUMBER])
        return {key: whole(inner) for key, inner in tree.items()}

    return {key: whole(state) for key, state in trees.items()}
