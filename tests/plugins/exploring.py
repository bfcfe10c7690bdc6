"""A selection that explores: now and then a client tries another cluster."""

import torch
from torch import Tensor

from covey import ClusterSelection, SelectionInputs


class Exploring(ClusterSelection):
    """argmin_j loss[i, j], and with chance epsilon one of those offered, drawn alike."""

    epsilon: float = 0.1

    def select(self, inputs: SelectionInputs) -> Tensor:
        best = torch.where(inputs.available, inputs.losses, torch.inf).argmin(dim=1)
        offered = inputs.available.nonzero().flatten()
        for i, own in enumerate(inputs.client_streams):
            draw = own.at("explore").generator()
            if draw.random() < self.epsilon:
                best[i] = offered[int(draw.integers(len(offered)))]
        return best
