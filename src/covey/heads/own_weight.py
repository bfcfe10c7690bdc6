"""What a head tells of a client's records, for every weight with which they could enter."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from covey.heads.grid import FEATURE_STEPS, WEIGHT_STEPS, squared_steps
from covey.heads.leave_out import LeftOut, left_out, targets_of
from covey.heads.solving import Head
from covey.heads.sums import Rows

__all__ = ["OwnWeight"]


@dataclass(frozen=True, slots=True, eq=False)
class OwnWeight:
    """A client's records in a head, as its weight w moves and all else stays.

    With w0 the weight at which they stand in M, K = Phi M^-1 Phi^T and
    C(w) = (I + (w - w0) K)^-1, by Woodbury's identity and without another solution:

        Phi M(w)^-1 = C Phi M^-1,    K(w) = C K
        scores      = C (p + (w - w0) K T)
        variances   = diag C (V + (w^2 - w0^2) K K^T) C^T,    V = Phi M^-1 N M^-1 Phi^T

    K = U diag(kappa) U^T, so C costs as many operations as it has entries. All else is
    also the regularisation: its unit, the mean diagonal of everybody's sums, is the one
    at w0.

    Attributes:
        basis, values: U and kappa.
        scores: p, the head's at w0.
        spread: V.
        weight: w0, in steps of its grid.
    """

    basis: Float64[Tensor, "rows rows"]
    values: Float64[Tensor, " rows"]
    scores: Float64[Tensor, "rows classes"]
    spread: Float64[Tensor, "rows rows"]
    labels: Int64[Tensor, " rows"]
    weight: int

    @classmethod
    def of(cls, head: Head, rows: Rows) -> "OwnWeight":
        """Return a client's records in the head of its own cluster."""
        phi = rows.features.double() / FEATURE_STEPS
        rooted = torch.linalg.solve_triangular(head.lower, phi.T, upper=False)
        solved = torch.linalg.solve_triangular(head.lower.T, rooted, upper=True)
        values, basis = torch.linalg.eigh(rooted.T @ rooted)
        spread = solved.T @ (head.gram @ solved)
        scores = phi @ head.theta
        return cls(basis, values.clamp(min=0), scores, spread, rows.labels, rows.weight)

    def at(self, weight: int) -> LeftOut:
        """Return the scores at this weight, and without each record, which has it too."""
        w = weight / WEIGHT_STEPS
        moved = w - self.weight / WEIGHT_STEPS
        squared = squared_steps(weight) - squared_steps(self.weight)
        kernel = self._turned(self.values)
        shrunk = self._turned(1 / (1 + moved * self.values))
        targets = targets_of(self.labels, self.scores)
        varying = self.spread + squared / WEIGHT_STEPS * (kernel @ kernel)
        return left_out(
            scores=(shrunk @ (self.scores + moved * (kernel @ targets))).float(),
            labels=self.labels,
            leverages=((shrunk * kernel).sum(dim=1) * w).float(),
            variances=((shrunk @ varying) * shrunk).sum(dim=1).float(),
        )

    def _turned(self, values: Float64[Tensor, " rows"]) -> Float64[Tensor, "rows rows"]:
        return (self.basis * values) @ self.basis.T
