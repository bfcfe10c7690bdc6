"""The point from which clients' updates are least far away in sum."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation.base import ClusterwiseAggregation
from covey.aggregation.merging import ClientUpdate, sum_per_cluster
from covey.components.capability import Capability
from covey.components.section import Positive
from covey.params import scale, trained
from covey.types import Params

__all__ = ["GeometricMedian"]

NEAREST = 1e-6
"""Below this distance an update counts as so far away: nu in the paper."""


COLUMNS = 2**18
"""Numbers of each update that are looked at together: it bounds the memory."""


def _dots(updates: Sequence[Params]) -> Float[Tensor, "clients clients"]:
    """Return the products u_i u_k of all pairs of updates, in float64."""
    found = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for name in updates[0]:
        columns = (each[name].reshape(-1).split(COLUMNS) for each in updates)
        for part in zip(*columns, strict=True):
            block = torch.stack(part).double()
            found += block @ block.T
    return found


class GeometricMedian(ClusterwiseAggregation):
    """The geometric median, by smoothed Weiszfeld steps: a majority holds it.

    theta_j <- theta_j + v,  v = argmin_v sum_i |u_i - v|

    Each step is v <- sum_i b_i u_i / sum_i b_i with b_i = 1 / max(nu, |u_i - v|), from the
    mean on. Distances are those of what training moves; the last b_i weigh the rest too.
    All count alike.

    Attributes:
        steps: how many.

    References:
        Pillutla, Kakade, Harchaoui, Robust Aggregation for Federated Learning, 2022,
        Algorithm 2.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SINGLE_UPDATES, Capability.UNIFORM_WEIGHTS}
    )
    rules_out: ClassVar[frozenset[Capability]] = frozenset()
    waits: ClassVar[bool] = False

    steps: Positive = 50

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the geometric median of the updates."""
        dots = _dots([trained(each.update) for each in updates])
        shares = torch.full((len(dots),), 1 / len(dots), dtype=torch.float64)
        for _ in range(self.steps):
            # |u_i - v|^2 = u_i u_i - 2 u_i v + v v, for v = sum_k shares_k u_k
            to_v = dots @ shares
            squares = dots.diagonal() - 2 * to_v + shares @ to_v
            nearness = 1 / squares.clamp(min=NEAREST**2).sqrt()
            shares = nearness / nearness.sum()
        weighed = (
            replace(update, weight=share)
            for update, share in zip(updates, shares.tolist(), strict=True)
        )
        sums, weights = sum_per_cluster(weighed)
        j = updates[0].cluster
        return scale(sums[j], 1 / weights[j])
