"""A selection rule of your own: `--set method.selection=own_selection:cautious`."""

import torch

from covey import ByLoss, SelectionInputs


def cautious(inputs: SelectionInputs) -> torch.Tensor:
    """Take the safest cluster whose loss is within a tenth of a nat of the lowest."""
    if inputs.risks[:, inputs.available].isnan().any():
        return ByLoss().select(inputs)
    losses = torch.where(inputs.available, inputs.losses, torch.inf)
    close = losses <= losses.min(dim=1, keepdim=True).values + 0.1
    return torch.where(close, inputs.risks, torch.inf).argmin(dim=1)
