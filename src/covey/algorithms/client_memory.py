"""What clients keep for themselves from round to round, where their objective needs it.

It stays on the client's side; a simulation plays both, and keeps it with the state.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.algorithms.base import ServerState
from covey.components.state import ComponentState
from covey.types import Handle, Params

__all__ = ["ClientMemory", "Memories", "noting", "with_memory"]

Memories = Mapping[Handle, Mapping[str, Params]]
"""What each client keeps, by name: tensors named like the model's parameters."""


class ClientMemory(ComponentState):
    """What each client kept when it last took part."""

    key = "client-memory"
    kept: Mapping[Handle, Mapping[str, Mapping[str, Tensor]]] = {}


def with_memory(
    state: ServerState, noted: Memories, accepted: Collection[Handle]
) -> ServerState:
    """Return the state after a round; a refused update leaves a memory as it was."""
    new = {handle: each for handle, each in noted.items() if handle in accepted}
    if not new:
        return state
    return state.keeping(ClientMemory(kept={**state.kept(ClientMemory).kept, **new}))


def noting(
    updates: Iterable[ClientUpdate], noted: dict[Handle, Mapping[str, Params]]
) -> Iterator[ClientUpdate]:
    """Yield the updates, and put down what each client keeps."""
    for each in updates:
        if each.kept:
            noted[each.handle] = each.kept
        yield each
