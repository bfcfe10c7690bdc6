"""An aggregation of a user's own that shares a part of every model with all clusters."""

from collections.abc import Iterable
from typing import Annotated

import torch
from pydantic import Field

from covey import Aggregation, AggregationResult, ClientUpdate, Params, Streams, mean_per_cluster


class Mixing(Aggregation):
    """theta_j <- (1 - share) theta_j + share * mean over all clusters of theta"""

    share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def aggregate(
        self, models: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
    ) -> AggregationResult:
        found = mean_per_cluster(models, updates, streams)
        mean = {
            name: torch.stack([each[name] for each in found.clusters]).mean(dim=0)
            for name in models[0]
        }
        mixed = tuple(
            {name: v + self.share * (mean[name] - v) for name, v in model.items()}
            for model in found.clusters
        )
        return AggregationResult(mixed, found.events)
