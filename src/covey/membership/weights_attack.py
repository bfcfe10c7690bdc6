"""The attack on a ridge head's weights: equations that are linear in membership.

A head theta that is solved from records of weight z_i, with residuals r_i = t_i - theta^T
phi_i and some regularisation mu > 0, satisfies

    sum_i z_i phi_i r_i^T = mu theta                            (d classes equations)

Who has the head, the feature map and candidates among which the members are asks which z
does. Nothing else needs to be known: neither mu, nor the weights of clients, nor how far
the head leans on other clusters.

References:
    Bertran et al., Reconstruction Attacks on Machine Unlearning: Simple Models are
    Vulnerable, 2024: records from linear models before and after.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from covey.heads.leave_out import targets_of

__all__ = ["MAX_POOL", "Hiding", "membership_weights"]

PRIOR = 1e-6
"""Of the mean square of a record's equations: what the rounding of weights in float32
(1e-7) or float16 (1e-3, in all entries independently) does not drown."""

MAX_POOL = 12_000
"""Candidates at most: the equations are solved as a matrix of as many rows and columns."""


@dataclass(frozen=True, slots=True)
class Hiding:
    """The noise in the equations of a head under objective perturbation.

    Attributes:
        pull: mu.
        variance: of the noise in each equation.
        weight: w, with which members are in the head, on average.
    """

    pull: float
    variance: float
    weight: float


def membership_weights(
    theta: Float64[Tensor, "d classes"],
    features: Float64[Tensor, "records d"],
    labels: Int64[Tensor, " records"],
    hidden: Hiding | None = None,
) -> Float64[Tensor, " records"]:
    """Return z, up to one factor: the larger, the more a record is in the head.

        argmin_{z, mu}  |sum_i z_i phi_i r_i^T - mu theta|^2 + rho |z - 1|^2

    Products of equations are products of features times products of residuals, so no
    matrix of d classes rows is made; mu is what is best for each z.

    Args:
        theta: the head, the bias last.
        features: of all candidates, 1 last.
        labels: theirs; t = onehot - 1 / classes.
        hidden: what is known of the noise; None: there is none, and of mu nothing is known.
    """
    scores = features @ theta
    residuals = targets_of(labels, scores) - scores
    along = (scores * residuals).sum(dim=1)  # <phi r^T, theta>
    products = (features @ features.T) * (residuals @ residuals.T)
    if hidden is None:
        products -= torch.outer(along, along) / theta.square().sum().clamp(min=1e-300)
        prior = PRIOR * float(products.diagonal().mean().clamp(min=1e-300))
        wanted = torch.full_like(along, prior)
    else:
        prior = (
            4 * hidden.variance / hidden.weight**2
        )  # z is 0 or w: (w / 2)^2 around w / 2
        wanted = hidden.pull * along + prior * hidden.weight / 2
    products.diagonal().add_(prior)
    lower: Tensor = torch.linalg.cholesky(products)  # pyright: ignore[reportUnknownMemberType]
    return torch.cholesky_solve(wanted[:, None], lower)[:, 0]
