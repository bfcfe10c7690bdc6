"""Heads as solutions of linear systems."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from covey.errors import ModelError
from covey.heads.blocks import blocks
from covey.heads.grid import FEATURE_STEPS, WEIGHT_STEPS
from covey.heads.sums import Sums

__all__ = ["Head", "SentHead", "diagonal_of", "solved_head"]


@dataclass(frozen=True, eq=False)
class Head:
    """theta = M^-1 B, with what tells how much each record has to say in it.

    Attributes:
        theta: the weights, the bias last.
        lower: L with L L^T = M.
    """

    theta: Float64[Tensor, "d classes"]
    lower: Float64[Tensor, "d d"]

    @cached_property
    def root(self) -> Float32[Tensor, "d d"]:
        """R with R R^T = M^-1, upper triangular: a record's leverage is w |phi R|^2."""
        d = len(self.lower)
        root = torch.zeros(d, d)
        for start, end in blocks(d):  # the columns of L^-1 are 0 above the diagonal
            one = torch.eye(d - start, end - start, dtype=torch.float64)
            below = self.lower[start:, start:]
            columns = torch.linalg.solve_triangular(below, one, upper=False)
            root[start:end, start:] = columns.T
        return root


@dataclass(frozen=True, eq=False)
class SentHead:
    """What a client needs of a head to know it without itself.

    Attributes:
        theta: as `Head.theta`; column by column in memory, like that one, so that products
            with it are the same to the last bit.
        root: as `Head.root`; without numbers where the head never met the client.
    """

    theta: Float32[Tensor, "d classes"]
    root: Float32[Tensor, "_ _"]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, root: Tensor | None) -> "SentHead":
        """Return the head of a model's last layer."""
        theta = torch.cat([weight, bias[:, None]], dim=1).T
        return cls(theta, torch.empty(0, 0) if root is None else root)


def solved_head(
    own: Sums,
    others: Sums,
    pooling: float,
    regularisation: float,
) -> Head:
    """Return the head of a cluster.

        theta_j = (A_j + gamma A_rest + lambda m I)^-1 (B_j + gamma B_rest)

    Args:
        own: A_j and B_j.
        others: A_rest and B_rest, of all other clusters.
        pooling: gamma in [0, 1]; 0: own data alone, 1: everybody's alike.
        regularisation: lambda > 0, in units of m, the mean diagonal of A_j + A_rest.

    Raises:
        ModelError: there is nothing to solve, or no number to solve it with.
    """
    system, targets = own.matrices(others, pooling)
    system.diagonal().add_(regularisation * unit_of(own, others))
    try:
        lower: Tensor = torch.linalg.cholesky(system)  # pyright: ignore[reportUnknownMemberType]
    except RuntimeError as error:
        raise ModelError(
            f"A head needs a regularisation with which it can be solved, found "
            f"{regularisation}. Raise it."
        ) from error
    return Head(torch.cholesky_solve(targets, lower), lower)


def unit_of(own: Sums, others: Sums) -> float:
    """Return m, the mean diagonal of A_j + A_rest; 1 where there is nobody."""
    diagonal = diagonal_of(len(own.targets))
    both = (own.gram[diagonal] + others.gram[diagonal]).double()
    return float(both.mean()) / (FEATURE_STEPS**2 * WEIGHT_STEPS) or 1.0


def diagonal_of(d: int) -> Int64[Tensor, " d"]:
    """Return where the diagonal stands in the lower half, row by row."""
    ends = torch.arange(1, d + 1)
    return ends * (ends + 1) // 2 - 1
