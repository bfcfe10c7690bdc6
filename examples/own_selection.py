"""A selection rule of your own: `--set method.selection=own_selection:cautious`."""

import torch

from covey import Ballot, select_by_loss


def cautious(ballot: Ballot) -> torch.Tensor:
    """Take the safest cluster whose loss is within a tenth of a nat of the lowest."""
    if ballot.risks[:, ballot.offered].isnan().any():
        return select_by_loss(ballot)
    losses = torch.where(ballot.offered, ballot.losses, torch.inf)
    close = losses <= losses.min(dim=1, keepdim=True).values + 0.1
    return torch.where(close, ballot.risks, torch.inf).argmin(dim=1)
