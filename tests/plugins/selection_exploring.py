"""A selection that explores: now and then a client takes a cluster by chance."""

import torch
from torch import Tensor

from covey import ClusterSelection, SelectionInputs
from covey.base.components import Share


class Exploring(ClusterSelection):
    """The lowest loss, or with chance `share` any cluster that is offered."""

    share: Share = 0.1

    def select(self, inputs: SelectionInputs) -> Tensor:
        offered = inputs.available.nonzero().flatten()
        best = torch.where(inputs.available, inputs.losses, torch.inf).argmin(dim=1)
        draws = [stream.generator() for stream in inputs.client_streams]
        explores = torch.tensor([draw.random() < self.share for draw in draws])
        anywhere = torch.tensor([int(draw.integers(len(offered))) for draw in draws])
        return torch.where(explores, offered[anywhere], best)
