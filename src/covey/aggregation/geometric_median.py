"""The point from which clients' updates are least far away in sum."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from covey.aggregation.base import ClusterwiseAggregation
from covey.aggregation.merging import ClientUpdate, sum_per_cluster
from covey.components.capability import Capability
from covey.components.section import Positive
from covey.params import flatten, scale, trained
from covey.types import Params

__all__ = ["GeometricMedian"]

NEAREST = 1e-6
"""Below this distance an update counts as so far away: nu in the paper."""


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
        points = torch.stack([flatten(trained(u.update)) for u in updates]).double()
        shares = torch.full((len(points),), 1 / len(points), dtype=torch.float64)
        for _ in range(self.steps):
            away = (points - shares @ points).norm(dim=1)
            nearness = 1 / away.clamp(min=NEAREST)
            shares = nearness / nearness.sum()
        weighed = (
            replace(update, weight=share)
            for update, share in zip(updates, shares.tolist(), strict=True)
        )
        sums, weights = sum_per_cluster(weighed)
        j = updates[0].cluster
        return scale(sums[j], 1 / weights[j])
