"""Choices that do not flap: whoever has just moved stays for a while."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from covey.clustering.selection import UNASSIGNED, SelectionInputs

__all__ = ["apply_hysteresis", "can_stay"]


def apply_hysteresis(
    inputs: SelectionInputs, chosen: Int[Tensor, " clients"]
) -> Int[Tensor, " clients"]:
    """Keep the clients that moved recently where they are (hysteresis).

    j_i(t) = j_i(t-1)   if i moved in one of the last n rounds, and its cluster is offered
           = chosen_i   otherwise

    A move changes the sizes of two clusters and hence both risks, which the next
    measurement shows. With n of at least `redteam.every` no client moves again before
    the red team has looked at the membership that its last move made, so that the
    figures it chooses by are those of the federation it would move in. That is why no
    risk is predicted for a prospective membership: the next measurement is that
    prediction, and two clusters are too few points to fit a law through.
    """
    stays = inputs.locked & can_stay(inputs)
    return torch.where(stays, inputs.current, chosen)


def can_stay(inputs: SelectionInputs) -> Bool[Tensor, " clients"]:
    """Say whose current cluster is on offer, so that it may stay."""
    somewhere = inputs.current != UNASSIGNED
    return somewhere & inputs.available[inputs.current.clamp(min=0)]
