"""The mean of what is left of every coordinate without its largest and smallest values."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from covey.aggregation.base import ClusterwiseAggregation
from covey.aggregation.merging import ClientUpdate
from covey.components.capability import Capability
from covey.types import Params

__all__ = ["TrimmedMean", "trimmed"]

EXACT = 1e-9
"""More than a product of a share and a count is rounded by."""


class TrimmedMean(ClusterwiseAggregation):
    """The coordinate-wise trimmed mean, from which few clients cannot move far.

    theta_j <- theta_j + mean of u_(k+1) ... u_(n-k),  k = max(1, floor(beta n))

    u_(1) <= ... <= u_(n) are the values of one coordinate in the updates of the n clients
    of cluster j. At least one value is left out at either end, so that a cluster needs
    three clients. All count alike.

    Attributes:
        trim: beta, the share that is left out at either end.

    References:
        Yin, Chen, Ramchandran, Bartlett, Byzantine-Robust Distributed Learning: Towards
        Optimal Statistical Rates, 2018, Definition 2.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SINGLE_UPDATES, Capability.UNIFORM_WEIGHTS}
    )

    trim: Annotated[float, Field(gt=0, lt=0.5)] = 0.1

    @property
    def fewest(self) -> int:
        """One to leave out at either end, and one to keep."""
        return 3

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the trimmed mean of the updates."""
        cut = max(1, int(self.trim * len(updates) + EXACT))
        return trimmed([each.update for each in updates], cut)


def trimmed(updates: Sequence[Params], cut: int) -> Params:
    """Return each coordinate's mean without its `cut` largest and smallest values.

    BatchNorm's statistics are coordinates here. Counters take their maximum instead.
    """
    kept = slice(cut, len(updates) - cut)
    found: dict[str, torch.Tensor] = {}
    for name, first in updates[0].items():
        values = torch.stack([each[name] for each in updates])
        found[name] = (
            values.sort(dim=0).values[kept].mean(dim=0)
            if first.is_floating_point()
            else values.amax(dim=0)
        )
    return found
