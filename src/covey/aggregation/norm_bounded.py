"""The mean of updates of bounded length."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from covey.aggregation.base import Aggregation
from covey.aggregation.merging import AggregationResult, ClientUpdate, mean_per_cluster
from covey.components.capability import Capability
from covey.params import flatten, trained
from covey.rng import Streams
from covey.types import Params

__all__ = ["NormBounded", "bounded"]


class NormBounded(Aggregation):
    """The weighted mean of updates, none of them longer than a bound.

    theta_j <- theta_j + sum_{i in S_j} w_i min(1, M / |u_i|) u_i / sum_{i in S_j} w_i

    One client moves the mean by at most its share of M. Without noise this is no
    differential privacy: see `privacy.client_clip`.

    Attributes:
        max_norm: M, the largest L2 norm of an update.

    References:
        Sun, Kairouz, Suresh, McMahan, Can You Really Backdoor Federated Learning?, 2019,
        section 3, norm thresholding.
    """

    rules_out: ClassVar[frozenset[Capability]] = frozenset()
    waits: ClassVar[bool] = False

    max_norm: Annotated[float, Field(gt=0)] = 1.0

    def aggregate(
        self,
        models: tuple[Params, ...],
        updates: Iterable[ClientUpdate],
        streams: Streams,
    ) -> AggregationResult:
        """Move every cluster model by the mean of its clients' bounded updates."""
        short = (replace(u, update=bounded(u.update, self.max_norm)) for u in updates)
        return mean_per_cluster(models, short, streams)


def bounded(update: Params, most: float) -> Params:
    """Return min(1, most / |u|) u.

    BatchNorm's statistics, which are no coordinates of an update, are bounded in the same
    way, by themselves. Counters stay.
    """
    moved = trained(update)
    others = {
        name: value
        for name, value in update.items()
        if value.is_floating_point() and name not in moved
    }
    found = dict(update)
    for part in filter(None, (moved, others)):
        length = float(flatten(part).double().norm())
        if length > most:
            found |= {name: value * (most / length) for name, value in part.items()}
    return found
