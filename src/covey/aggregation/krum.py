"""The update that lies closest to its neighbours, or the mean of a few such."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation.base import ClusterwiseAggregation
from covey.aggregation.merging import ClientUpdate, sum_per_cluster
from covey.components.capability import Capability
from covey.components.section import Positive
from covey.params import flatten, scale, trained
from covey.types import Params

__all__ = ["Krum", "krum_scores"]


class Krum(ClusterwiseAggregation):
    """Krum; Multi-Krum where `chosen` is above 1.

    s(i) = sum over the n - f - 2 updates u closest to u_i of |u_i - u|^2
    theta_j <- theta_j + mean of the m updates with the lowest s(i)

    n are the clients of cluster j, of which f may send anything; a cluster needs 2 f + 3
    clients, and m + f + 2. Of equal scores the first by client name is taken. Distances
    are those of what training moves. All count alike.

    Attributes:
        outliers: f.
        chosen: m.

    References:
        Blanchard, El Mhamdi, Guerraoui, Stainer, Machine Learning with Adversaries:
        Byzantine Tolerant Gradient Descent, 2017, sections 4 and 5.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SINGLE_UPDATES, Capability.UNIFORM_WEIGHTS}
    )

    outliers: Positive = 1
    chosen: Positive = 1

    @property
    def fewest(self) -> int:
        """Enough for every update to have neighbours that are no outliers."""
        return self.outliers + max(self.outliers + 3, self.chosen + 2)

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the mean of the updates with the lowest scores."""
        points = torch.stack([flatten(trained(each.update)) for each in updates])
        scores = krum_scores(points, len(updates) - self.outliers - 2)
        best = scores.argsort(stable=True)[: self.chosen].sort().values
        sums, weights = sum_per_cluster(updates[i] for i in best.tolist())
        j = updates[0].cluster
        return scale(sums[j], 1 / weights[j])


def krum_scores(
    points: Float[Tensor, "clients coordinates"], neighbours: int
) -> Float[Tensor, " clients"]:
    """Return the sum of each point's squared distances to its nearest neighbours."""
    away = torch.cdist(
        points.double(),
        points.double(),
        compute_mode="donot_use_mm_for_euclid_dist",
    )
    nearest = away.square().sort(dim=1).values
    return nearest[:, 1 : neighbours + 1].sum(dim=1)  # the first is its own
