"""Sums of clients under masks, and who waits so that no two of them single anybody out."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from jaxtyping import Int64

from covey.algorithms.base import ServerState
from covey.components.state import ComponentState
from covey.errors import ModelError
from covey.events import MovesWaited
from covey.heads import ClusterSums, Sums
from covey.secure_sums import movable, secure_sum
from covey.types import Handle

__all__ = ["SumParts", "masked_sums", "with_waiting_moves"]

RING = 2**63
"""Whole numbers that stay below it come out of the ring as they went in."""


class SumParts(ComponentState):
    """Which clients were in exactly the same sums until now.

    Attributes:
        parts: of everybody who is in some sum, a number that it shares with those.
    """

    key = "sum-parts"
    parts: Mapping[Handle, int] = {}


def masked_sums(
    clients: Mapping[Handle, Callable[[], Sums]],
    shape: tuple[int, int],
    minimum: int,
) -> Sums:
    """Return the sums over these clients, each of which sends its own under masks.

    Args:
        clients: what makes each one's sums.
        shape: d, and how many classes there are.
        minimum: the fewest clients that a sum may be over.

    Raises:
        RoundGivenUpError: they are fewer.
        ModelError: the sums are too large to be exact.
    """
    nothing = Sums.nothing(*shape)
    length = len(nothing.gram) + nothing.targets.numel()

    def numbers(own: Callable[[], Sums]) -> Int64[np.ndarray, " numbers"]:
        sums = own()
        if int(sums.gram.max()) * len(clients) >= RING:
            raise ModelError(
                f"Under masks, a client's sums must stay below 2^63 divided by the number "
                f"of clients, found {int(sums.gram.max())} of {len(clients)} clients. "
                f"Scale the features down, or have fewer records."
            )
        return torch.cat([sums.gram, sums.targets.flatten()]).numpy()

    sending = {handle: partial(numbers, own) for handle, own in clients.items()}
    found = torch.from_numpy(secure_sum(sending, length, minimum).values)
    gram, targets = found.split([len(nothing.gram), nothing.targets.numel()])
    return nothing + Sums(gram, targets.reshape(shape))


def with_waiting_moves(
    state: ServerState, wishes: Mapping[Handle, int], minimum: int
) -> tuple[ServerState, dict[Handle, int], tuple[MovesWaited, ...]]:
    """Return whose sums are counted where, so that no part of them is of too few clients.

    Who moves together with fewer than `minimum` others of its part, or would leave fewer
    behind, stays counted where it was; who was in no sum yet stays out of them.

    Args:
        state: before the round. Where somebody left and its sums are in them still, they
            are all made anew.
        wishes: what clients of the cohort chose.
        minimum: the fewest clients that a sum may be over.
    """
    known, parts = state.kept(ClusterSums), dict(state.kept(SumParts).parts)
    at = {handle: j for handle, (j, _) in known.counted.items()}
    if not known.is_whole:
        wishes, at, parts = {**at, **wishes}, {}, {}
        state = state.keeping(known.of((), {}))
    moves = {handle: j for handle, j in wishes.items() if at.get(handle) != j}
    moving = movable(moves, parts, minimum)
    fresh = max(parts.values(), default=-1) + 1
    numbered: dict[tuple[int | None, int], int] = {}
    for handle in sorted(moving):
        group = parts.get(handle), moves[handle]
        parts[handle] = numbered.setdefault(group, fresh + len(numbered))
    waiting = sorted(moves.keys() - moving)
    counted = {
        handle: j if handle in moving else at[handle]
        for handle, j in wishes.items()
        if handle in moving or handle in at
    }
    facts = (MovesWaited(tuple(waiting), minimum),) if waiting else ()
    return state.keeping(SumParts(parts=parts)), counted, facts
