"""Who moves between sums, so that no part of them is of too few clients."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64

from covey.algorithms.state import ServerState
from covey.base.component_state import ComponentState
from covey.base.events import MovesWaited
from covey.base.names import Handle
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums
from covey.secure_sums.client import movable


class SumParts(ComponentState):
    """Which clients were in exactly the same sums until now.

    Attributes:
        parts: of everybody who is in some sum, a number that it shares with those.
    """

    key = "sum-parts"
    parts: Mapping[Handle, int] = {}


@dataclass(frozen=True, slots=True)
class Summed:
    """What the rounds of secure sums of remote clients came to.

    Attributes:
        groups: whose sums came, those of each group together.
        shown: groups that got a request to open a sum which then did not come. To these
            clients it is released, so they move together from then on.
    """

    groups: tuple[frozenset[Handle], ...] = ()
    shown: tuple[frozenset[Handle], ...] = ()

    @property
    def clients(self) -> frozenset[Handle]:
        """All whose sums came."""
        return frozenset[Handle]().union(*self.groups)


@dataclass(frozen=True, slots=True)
class Moves:
    """Who is to be counted elsewhere than it is.

    Attributes:
        desired: where, by handle.
        parts: of everybody who is in some sum.
        minimum: the fewest clients that a sum may be over.
    """

    desired: Mapping[Handle, int]
    parts: Mapping[Handle, int]
    minimum: int

    @classmethod
    def after(cls, state: ServerState, desired: Mapping[Handle, int], minimum: int) -> "Moves":
        """Return what remote clients' choices come to.

        Where somebody left, all are summed anew, and still in parts: to those who stay,
        every sum that they were in is released.
        """
        known = state.kept(ClusterSums)
        at = {handle: j for handle, (j, _) in known.counted.items()}
        if not known.is_whole:
            desired, at = {**at, **desired}, {}
        moves = {handle: j for handle, j in desired.items() if at.get(handle) != j}
        return cls(moves, state.kept(SumParts).parts, minimum)

    def groups(self, among: Collection[Handle] | None = None) -> tuple[frozenset[Handle], ...]:
        """Return who may move, those together whose sums are one; or who of these may."""
        asking = self.desired.keys() if among is None else among
        desired = {handle: self.desired[handle] for handle in asking}
        groups_by_target: dict[tuple[int | None, int], set[Handle]] = defaultdict(set)
        for handle in movable(desired, self.parts, self.minimum):
            groups_by_target[self.parts.get(handle), desired[handle]].add(handle)
        return tuple(sorted(map(frozenset, groups_by_target.values()), key=min))


def with_waiting_moves(
    state: ServerState, desired: Mapping[Handle, int], minimum: int, summed: Summed | None = None
) -> tuple[ServerState, dict[Handle, int], tuple[MovesWaited, ...]]:
    """Return whose sums are counted where, so that no part of them is of too few clients.

    Who moves without all others of its part stays counted where it was; who was in no sum
    yet stays out of them until `minimum` come together.

    Args:
        state: before the round. Where somebody left and its sums are in them still, they
            are all made anew.
        desired: what clients of the cohort chose.
        minimum: the fewest clients that a sum may be over.
        summed: whose sums came, and so who moves, where clients are remote.
    """
    known, parts = state.kept(ClusterSums), dict(state.kept(SumParts).parts)
    at = {handle: j for handle, (j, _) in known.counted.items()}
    if not known.is_whole:
        desired, at = {**at, **desired}, {}
        parts = parts if summed else {}
        state = state.keeping(known.of((), {}))
    moves = {handle: j for handle, j in desired.items() if at.get(handle) != j}
    groups = Moves(moves, parts, minimum).groups() if summed is None else summed.groups
    moving = frozenset[Handle]().union(*groups)
    fresh = max(parts.values(), default=-1) + 1
    for number, group in enumerate((*groups, *(summed.shown if summed else ())), fresh):
        parts.update(dict.fromkeys(group, number))
    waiting = sorted(moves.keys() - moving)
    counted = {
        handle: j if handle in moving else at[handle]
        for handle, j in desired.items()
        if handle in moving or handle in at
    }
    facts = (MovesWaited(tuple(waiting), minimum),) if waiting else ()
    return state.keeping(SumParts(parts=parts)), counted, facts


def numbers_of(sums: Sums) -> Int64[np.ndarray, " numbers"]:
    """Return sums as the numbers that are added up."""
    return torch.cat([sums.gram, sums.targets.flatten()]).numpy()


def sums_of_numbers(numbers: Int64[np.ndarray, " numbers"], shape: tuple[int, int]) -> Sums:
    """Undo `numbers_of`, of d features and so many classes."""
    d, classes = shape
    gram, targets = torch.from_numpy(numbers).split([d * (d + 1) // 2, d * classes])
    return Sums(gram, targets.reshape(shape))
