"""The median of clients' updates, coordinate by coordinate."""

from collections.abc import Sequence
from typing import ClassVar

from covey.aggregation.base import ClusterwiseAggregation
from covey.aggregation.merging import ClientUpdate
from covey.aggregation.trimmed_mean import trimmed
from covey.components.capability import Capability
from covey.types import Params

__all__ = ["Median"]


class Median(ClusterwiseAggregation):
    """The coordinate-wise median: where fewer than half lie, it stays among the others.

    theta_j <- theta_j + med(u_1, ..., u_n)

    For an even n it is the mean of the two values in the middle: with two clients the mean,
    which one of them alone can move. All count alike.

    References:
        Yin, Chen, Ramchandran, Bartlett, Byzantine-Robust Distributed Learning: Towards
        Optimal Statistical Rates, 2018, Definition 1.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SINGLE_UPDATES, Capability.UNIFORM_WEIGHTS}
    )
    rules_out: ClassVar[frozenset[Capability]] = frozenset()
    waits: ClassVar[bool] = False

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the median of the updates."""
        return trimmed([each.update for each in updates], (len(updates) - 1) // 2)
