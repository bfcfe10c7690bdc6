"""One noisy release of bounded sums, and the head that is solved from it.

References:
    Dwork, Talwar, Thakurta, Zhang, Analyze Gauss, 2014: noise on a Gram matrix.
    Wang, Revisiting Differentially Private Linear Regression (AdaSSP), 2018:
    regularisation from the noise.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from covey.heads.bounding import (
    CLIENT_STEPS,
    MAX_NORM,
    bounded_client,
    target_norm,
)
from covey.heads.grid import FEATURE_STEPS, WEIGHT_STEPS
from covey.heads.solving import Head
from covey.heads.sums import Rows, Sums
from covey.rng import Draws, with_noise

__all__ = ["SumNoise", "noisy_head"]


@dataclass(frozen=True, slots=True)
class SumNoise:
    """Gaussian noise on a cluster's sums, and the bound on what hides in it.

        A' = A + E_A,    B' = B + E_B
        E_A symmetric: N(0, 2 s^2 R^4) on the diagonal, N(0, s^2 R^4) beside it
        E_B: N(0, 2 s^2 R^2 |t|^2), in the directions in which targets add up to 0
        s = z times what one client adds at most

    In the norm of `covey.heads.bounding` it is N(0, s^2) on every coordinate: one Gaussian
    mechanism of multiplier z, half of whose mu^2 is A's, and half B's.

    Attributes:
        clip: C: the largest norm of what a client adds.
        multiplier: z.
    """

    clip: float
    multiplier: float

    def bounded(self, rows: Rows, classes: int) -> Rows:
        """Return a client's records as they enter the sums."""
        return bounded_client(rows, self.clip, classes)

    def released(self, sums: Sums, draws: Draws) -> Sums:
        """Return the sums under noise: whole numbers again, rounded after the noise."""
        d, classes = sums.targets.shape
        on_gram = self._std() * (MAX_NORM * FEATURE_STEPS) ** 2
        drawn = draws.normal(0.0, on_gram, (d * (d + 1) // 2,))
        ends = np.arange(1, d + 1)
        drawn[ends * (ends + 1) // 2 - 1] *= math.sqrt(2)  # the diagonal
        std = self._std() * MAX_NORM * FEATURE_STEPS * math.sqrt(2)
        std *= target_norm(classes)
        on_targets = draws.normal(0.0, std, (d, classes))
        on_targets -= on_targets.mean(axis=1, keepdims=True)
        # What is kept of B are classes, of which the centre is taken off by A's last row.
        on_targets += drawn[-d:, None] / FEATURE_STEPS / classes
        return Sums(
            with_noise(sums.gram, np.rint(drawn), on_gram, draws),
            with_noise(sums.targets, np.rint(on_targets), std, draws),
        )

    def edge(self, d: int) -> float:
        """Return 2 s R^2 sqrt(d), to which the largest eigenvalue of E_A tends (Wigner)."""
        return 2 * self._std() * MAX_NORM**2 * math.sqrt(d) / WEIGHT_STEPS

    def _std(self) -> float:
        """Return s, in steps of weight."""
        return self.multiplier * CLIENT_STEPS


def noisy_head(
    own: Sums, others: Sums, pooling: float, regularisation: float, edge: float
) -> Head:
    """Return the head of a cluster, solved from released sums alone.

        theta_j = ((A'_j + gamma A'_rest)_+ + lambda e I)^-1 (B'_j + gamma B'_rest)

    ()_+ takes negative eigenvalues, which only noise can make, as 0.

    Args:
        own: A'_j and B'_j.
        others: A'_rest and B'_rest, of all other clusters.
        pooling: gamma.
        regularisation: lambda, in units of e.
        edge: e, of the noise in the system: from its standard deviation and d alone.
    """
    system, targets = own.matrices(others, pooling)
    values, basis = torch.linalg.eigh(system)
    kept = values.clamp(min=0) + regularisation * edge
    theta = basis @ ((basis.T @ targets) / kept[:, None])
    lower = torch.linalg.cholesky((basis * kept) @ basis.T)  # pyright: ignore[reportUnknownMemberType]
    return Head(theta, lower)
