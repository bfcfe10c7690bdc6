"""The weighted mean of clients' updates, cluster by cluster."""

from collections.abc import Iterable
from typing import ClassVar

from covey.aggregation.base import Aggregation
from covey.aggregation.masked_mean import masked_mean
from covey.aggregation.merging import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    mean_per_cluster,
)
from covey.components.capability import Capability
from covey.rng import Streams
from covey.types import Params

__all__ = ["Mean"]


class Mean(Aggregation):
    """Federated averaging: `mean_per_cluster`. Sums of updates are all that it needs."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    rules_out: ClassVar[frozenset[Capability]] = frozenset()
    waits: ClassVar[bool] = False

    def aggregate(
        self,
        models: tuple[Params, ...],
        updates: Iterable[ClientUpdate],
        streams: Streams,
    ) -> AggregationResult:
        """Move every cluster model by the weighted mean of its clients' updates."""
        return mean_per_cluster(models, updates, streams)

    def masked(self, min_cohort: int) -> Aggregator | None:
        """Return the mean of updates in fixed point, of which a server sees sums alone."""
        is_the_mean = type(self).aggregate is Mean.aggregate
        return masked_mean(min_cohort) if is_the_mean else None
