"""Sums under masks, so that no two of them reveal those of few clients."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import numpy as np
from jaxtyping import Int64

from covey.base.component_state import ComponentState
from covey.base.errors import ModelError
from covey.base.events import ClientsWaited
from covey.base.names import Handle
from covey.ridge.sums import Sums
from covey.secure_sums.noise import RING
from covey.secure_sums.server import secure_sum

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

    def waiting(self, clients: Collection[Handle], minimum: int) -> tuple[ClientsWaited, ...]:
        """Return the fact about the others of these, until they are enough."""
        others = frozenset(clients).difference(*self.groups(clients, minimum))
        return (ClientsWaited(tuple(sorted(others)), minimum),) if others else ()

    def with_groups(self, groups: Iterable[frozenset[Handle]]) -> "SumCohorts":
        """Return the cohorts after sums over these groups."""
        cohorts = dict(self.cohorts)
        for number, group in enumerate(groups, max(cohorts.values(), default=IN_NONE) + 1):
            cohorts.update(dict.fromkeys(group, number))
        return SumCohorts(cohorts=cohorts)


def masked_sums(
    clients: Mapping[Handle, Callable[[], Sums]], shape: tuple[int, int], minimum: int
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

    def numbers(own: Callable[[], Sums]) -> Int64[np.ndarray, " numbers"]:
        sums = own()
        if int(sums.gram.max()) * len(clients) >= RING:
            raise ModelError(
                f"Under masks, a client's sums must stay below 2^63 / clients, found "
                f"{int(sums.gram.max())} of {len(clients)} clients: scale features, or have fewer "
                f"records."
            )
        return sums.numbers()

    sending = {handle: partial(numbers, own) for handle, own in clients.items()}
    total = secure_sum(sending, len(nothing.numbers()), minimum).values
    return nothing + Sums.of_numbers(total, *shape)
