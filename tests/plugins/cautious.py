"""A selection with parameters: leave a cluster only for a clear gain."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from covey import ClusterSelection, SelectionInputs


class Cautious(ClusterSelection):
    """Move where loss + weight * risk is lower by more than a margin, in nats."""

    margin: Annotated[float, Field(ge=0)] = 0.05
    weight: Annotated[float, Field(ge=0)] = 1.0

    def select(self, inputs: SelectionInputs) -> Tensor:
        cost = inputs.losses + self.weight * inputs.risks.nan_to_num(1.0)
        cost = torch.where(inputs.available, cost, torch.inf)
        best, home = cost.argmin(dim=1), inputs.current.clamp(min=0)
        gain = cost.gather(1, home[:, None])[:, 0] - cost.amin(dim=1)
        stays = (inputs.current >= 0) & inputs.available[home] & (gain <= self.margin)
        return torch.where(stays, home, best)
