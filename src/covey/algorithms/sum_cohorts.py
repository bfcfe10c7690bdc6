"""Whose sums are added up under masks, so that no two of these sums reveal those of few."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64

from covey.algorithms.state import ServerState
from covey.base.component_state import ComponentState
from covey.base.events import ClientsWaited
from covey.base.names import Handle
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums

IN_NONE = -1


class SumCohorts(ComponentState):
    """Which clients were in one sum: their nodes open no other that overlaps it.

    Attributes:
        cohorts: of everybody who is in some sum, a number that it shares with those.
    """

    key = "sum-cohorts"
    cohorts: Mapping[Handle, int] = {}

    def groups(self, clients: Iterable[Handle], minimum: int) -> tuple[frozenset[Handle], ...]:
        """Return who of these may be summed: whole cohorts, and enough who are in none.

        Args:
            clients: whose sums are to be counted.
            minimum: the fewest clients that a sum may be over.
        """
        sizes = Counter(self.cohorts.values())
        groups = defaultdict[int, set[Handle]](set)
        for handle in clients:
            groups[self.cohorts.get(handle, IN_NONE)].add(handle)
        large = (own for at, own in groups.items() if len(own) >= max(minimum, sizes[at]))
        return tuple(sorted(map(frozenset, large), key=min))

    def with_groups(self, groups: Iterable[frozenset[Handle]]) -> "SumCohorts":
        """Return the cohorts after sums over these groups."""
        cohorts = dict(self.cohorts)
        for number, group in enumerate(groups, max(cohorts.values(), default=IN_NONE) + 1):
            cohorts.update(dict.fromkeys(group, number))
        return SumCohorts(cohorts=cohorts)


@dataclass(frozen=True, slots=True)
class Summed:
    """What the rounds of secure sums of remote clients came to.

    Attributes:
        groups: whose sums came, those of each group together.
        shown: groups that got a request to open a sum which then did not come. To these
            clients it is released, so they are summed together from then on.
    """

    groups: tuple[frozenset[Handle], ...] = ()
    shown: tuple[frozenset[Handle], ...] = ()

    @property
    def clients(self) -> frozenset[Handle]:
        """All whose sums came."""
        return frozenset[Handle]().union(*self.groups)


def uncounted(state: ServerState, present: Collection[Handle]) -> frozenset[Handle]:
    """Return whose sums are needed: those of who is in none yet.

    Where somebody left whose sums are in them still, everybody's are.
    """
    known = state.kept(ClusterSums)
    if known.is_whole:
        return frozenset(present).difference(known.counted)
    return frozenset(present).union(known.counted)


def counted_together(
    state: ServerState, present: Collection[Handle], minimum: int, summed: Summed | None = None
) -> tuple[ServerState, frozenset[Handle], tuple[ClientsWaited, ...]]:
    """Return whose sums are counted from now on, and who waits for others.

    Args:
        state: before the round. Where somebody left and its sums are in them still, they
            are all made anew.
        present: clients of the cohort.
        minimum: the fewest clients that a sum may be over.
        summed: whose sums came, where clients are remote.
    """
    known, cohorts = state.kept(ClusterSums), state.kept(SumCohorts)
    needed = uncounted(state, present)
    if not known.is_whole:
        cohorts = cohorts if summed else SumCohorts()
        state = state.keeping(known.of((), {}))
    groups = cohorts.groups(needed, minimum) if summed is None else summed.groups
    waiting = needed.difference(*groups)
    shown = summed.shown if summed else ()
    facts = (ClientsWaited(tuple(sorted(waiting)), minimum),) if waiting else ()
    state = state.keeping(cohorts.with_groups((*groups, *shown)))
    return state, (needed | frozenset(present)) - waiting, facts


def numbers_of(sums: Sums) -> Int64[np.ndarray, " numbers"]:
    """Return sums as the numbers that are added up."""
    return torch.cat([sums.gram, sums.targets.flatten()]).numpy()


def sums_of_numbers(numbers: Int64[np.ndarray, " numbers"], shape: tuple[int, int]) -> Sums:
    """Undo `numbers_of`, of d features and so many classes."""
    d, classes = shape
    gram, targets = torch.from_numpy(numbers).split([d * (d + 1) // 2, d * classes])
    return Sums(gram, targets.reshape(shape))
