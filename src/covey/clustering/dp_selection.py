"""Choosing a cluster without telling why: report-noisy-min.

References:
    McSherry, Talwar, Mechanism Design via Differential Privacy, 2007.
    Dwork, Roth, The Algorithmic Foundations of Differential Privacy, 2014, section 3.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covey.clustering.selection import Selection, SelectionInputs, finite

__all__ = ["choice_epsilon", "report_noisy_min"]

CostFunction = Callable[[SelectionInputs], Float[Tensor, "clients clusters"]]


def report_noisy_min(cost: CostFunction, bound: float, noise: float) -> Selection:
    """Return the selection of the lowest noisy cost among the offered clusters.

    j_i = argmin_j  c[i, j] - b B G[i, j],   c[i, j] = min(cost[i, j], B)

    With G standard Gumbel this is the exponential mechanism:

    P(j_i = j) = exp(-c[i, j] / (b B)) / sum_l exp(-c[i, l] / (b B))

    Let a client hold other examples: each of its costs stays in [0, B], so that each term
    exp(-c / (b B)) changes by a factor of at most exp(1 / b), the numerator once and the
    sum once. One choice is (2 / b)-differentially private, whatever its examples are.
    Between two clusters the true figure is 1 / b: what one term gains the other can lose,
    but not the numerator and its share of the sum.

    Args:
        cost: what a client would pay for each cluster, 0 or more; a diverged model's is
            the worst.
        bound: B, the same for everybody and known to all.
        noise: b, above 0.
    """

    def select(inputs: SelectionInputs) -> Tensor:
        costs = finite(cost(inputs).double()).clamp(0, bound)
        clusters = len(inputs.available)
        drawn = [one.draws().gumbel(size=(clusters,)) for one in inputs.client_streams]
        gumbel = torch.from_numpy(np.array(drawn).reshape(costs.shape))
        noisy = costs - noise * bound * gumbel
        return torch.where(inputs.available, noisy, torch.inf).argmin(dim=1)

    return select


def choice_epsilon(noise: float) -> float:
    """Return the epsilon of one choice by `report_noisy_min`."""
    return 2 / noise
