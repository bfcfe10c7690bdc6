"""Each client's own sums, where the server keeps them to take them off again by itself."""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor

from covey.components.state import ComponentState
from covey.heads import Sums
from covey.types import Handle

__all__ = ["OwnSums"]


class OwnSums(ComponentState):
    """What each client that is counted added to sums, before it was weighed.

    Attributes:
        gram, targets: of each client (`covey.heads.Sums`), each of its records once: at
            the smallest weight there is.
    """

    key = "own-sums"
    gram: Mapping[Handle, Tensor] = {}
    targets: Mapping[Handle, Tensor] = {}

    def total(
        self,
        clients: Iterable[tuple[Handle, int]],
        compute: Callable[[Handle], Sums],
        nothing: Sums,
    ) -> Sums:
        """Return the sums over these clients at these weights.

        Args:
            clients: whose, each with its weight.
            compute: those of one client that are not kept.
            nothing: the sums over nobody.
        """
        found = nothing
        for handle, weight in clients:
            if weight:
                found += self._of(handle, compute).times(weight)
        return found

    def over(
        self,
        counted: Mapping[Handle, tuple[int, int]],
        compute: Callable[[Handle], Sums],
    ) -> "OwnSums":
        """Return the sums of all who are counted at some weight, and of nobody else."""
        found = {
            h: self._of(h, compute) for h, (_, weight) in counted.items() if weight
        }
        return OwnSums(
            gram={handle: each.gram for handle, each in found.items()},
            targets={handle: each.targets for handle, each in found.items()},
        )

    def _of(self, handle: Handle, compute: Callable[[Handle], Sums]) -> Sums:
        if handle not in self.gram:
            return compute(handle)
        return Sums(self.gram[handle], self.targets[handle])
