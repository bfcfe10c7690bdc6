"""An aggregation of a user's own that shares a part of every model with all clusters."""

from typing import Annotated

import torch
from pydantic import Field

from covey import Aggregation, AggregationResult, ClusterMeans, Params


class Mixing(Aggregation):
    """theta_j <- (1 - share) theta_j + share * mean over all clusters of theta"""

    share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def begin(self, models: tuple[Params, ...], streams, federation) -> "MixedMeans":
        return MixedMeans(models, self.share)


class MixedMeans(ClusterMeans):
    def __init__(self, models: tuple[Params, ...], share: float) -> None:
        super().__init__(models)
        self.share = share

    def result(self) -> AggregationResult:
        aggregated = super().result()
        mean = {
            name: torch.stack([cluster[name] for cluster in aggregated.clusters]).mean(dim=0)
            for name in self.models[0]
        }
        mixed = tuple(
            {name: v + self.share * (mean[name] - v) for name, v in model.items()}
            for model in aggregated.clusters
        )
        return AggregationResult(mixed, aggregated.events)
