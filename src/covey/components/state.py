"""What a component keeps from one round to the next, and how it comes through a crash.

A checkpoint saves all of it without knowing any of it: numbers, words and collections as
JSON, tensors beside them.
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from covey.types import Handle

__all__ = ["ComponentState", "States", "decoded", "encoded", "keep", "kept", "without"]

S = TypeVar("S", bound="ComponentState")

TENSOR = "$tensor"


class ComponentState(BaseModel):
    """A component's own state: frozen, with a default for every field.

    Fields are tensors, numbers, words, other frozen records, and tuples, sets and mappings
    of them. What is kept on a client stands in a mapping by the client's handle: whoever
    leaves is taken out of every such mapping.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        ser_json_inf_nan="constants",
    )

    key: ClassVar[str] = ""
    """The name in a checkpoint; else the class's own."""


States = Mapping[str, object]
"""What all components keep, by key: a state, or what a checkpoint holds of one."""


def _key(kind: type[ComponentState]) -> str:
    return kind.key or f"{kind.__module__}:{kind.__qualname__}"


def kept(states: States, kind: type[S]) -> S:
    """Return a component's state; before it has any, the one of defaults."""
    found = states.get(_key(kind))
    if found is None:
        return kind()
    return found if isinstance(found, kind) else kind.model_validate(found)


def keep(states: States, state: ComponentState) -> States:
    """Return the states, this one among them."""
    return {**states, _key(type(state)): state}


def without(states: States, handles: Collection[Handle]) -> States:
    """Return the states with nothing in them that is kept on these clients."""
    gone = set(handles)
    return {
        key: state.model_copy(update=_cut(dict(state), gone))
        if isinstance(state, ComponentState)
        else _cut(state, gone)
        for key, state in states.items()
    }


def _cut(value: Any, gone: set[Handle]) -> Any:  # noqa: ANN401 - a tree
    if isinstance(value, Mapping):
        tree = cast("Mapping[Any, Any]", value)
        return {key: _cut(each, gone) for key, each in tree.items() if key not in gone}
    return value


def encoded(states: States) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the states as JSON has them, and the tensors in them by name."""
    tensors: dict[str, Tensor] = {}

    def plain(value: Any, name: str) -> Any:  # noqa: ANN401 - a tree
        if isinstance(value, Tensor):
            tensors[name] = value
            return {TENSOR: name}
        if isinstance(value, Mapping):
            tree = cast("Mapping[Any, Any]", value)
            return {str(k): plain(each, f"{name}/{k}") for k, each in tree.items()}
        if isinstance(value, (set, frozenset)):
            value = sorted(cast("Collection[Any]", value))
        if isinstance(value, (tuple, list)):
            row = cast("Collection[Any]", value)
            return [plain(each, f"{name}/{i}") for i, each in enumerate(row)]
        return value

    def tree(state: object) -> object:
        return state.model_dump() if isinstance(state, ComponentState) else state

    found = {key: plain(tree(state), f"state/{key}") for key, state in states.items()}
    return found, tensors


def decoded(found: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> States:
    """Undo `encoded`, up to the classes: `kept` finds these."""

    def whole(value: Any) -> Any:  # noqa: ANN401 - a tree
        if isinstance(value, list):
            return [whole(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            tree = cast("dict[str, Any]", value)
            if tree.keys() == {TENSOR}:
                return tensors[tree[TENSOR]]
            return {key: whole(each) for key, each in tree.items()}
        return value

    return {key: whole(state) for key, state in found.items()}
