"""What a head would answer had a record, or a whole client, not taken part: exactly.

With e = t - p the errors on a client's records, R R^T = M^-1 and w the weight with which
they stand in the system of the head:

    H = w Phi M^-1 Phi^T = w (Phi R) (Phi R)^T
    error without record r = e_r / (1 - H_rr)                 (PRESS)
    error without the client = (I - H)^-1 e                   (block leave-out)

References:
    Allen, The Relationship Between Variable Selection and Data Augmentation and a Method
    for Prediction, 1974 (PRESS).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from covey.heads.blocks import blocks
from covey.heads.grid import FEATURE_STEPS, WEIGHT_STEPS
from covey.heads.solving import Head, SentHead
from covey.heads.sums import Rows

__all__ = [
    "LeftOut",
    "left_out",
    "scores_without_client",
    "scores_without_records",
    "targets_of",
]

Scores = Float[Tensor, "rows classes"]

TINY = 1e-6
"""The least that a record leaves to others: 1 - h."""


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """A head's answers on some records, each beside that of a head that never met it.

    Attributes:
        scores: p_r = theta^T phi_r.
        without: p_r of the head without record r.
        targets: t_r = onehot(y_r) - 1 / classes.
        leverages: h_r = w phi_r^T M^-1 phi_r in [0, 1).
        variances: phi_r^T M^-1 N M^-1 phi_r: the variance of p_r from draw to draw of the
            other records, in units of the errors' own.
    """

    scores: Scores
    without: Scores
    targets: Scores
    leverages: Float[Tensor, " rows"]
    variances: Float[Tensor, " rows"]


def scores_without_client(head: Head | SentHead, rows: Rows, share: float) -> Scores:
    """Return the scores on a client's records of a head that never met the client.

    Args:
        head: solved with the client's records, at their weight times `share`.
        rows: the client's.
        share: 1 in the client's own cluster, gamma in any other; 0: it never met them.
    """
    phi = rows.features.float().div_(FEATURE_STEPS)
    scores = phi @ head.theta.float()
    weight = share * rows.weight / WEIGHT_STEPS
    if not weight or not len(rows):
        return scores
    targets = targets_of(rows.labels, scores)
    rooted = _times_root(phi, head.root)
    hat = (rooted @ rooted.T).double() * weight
    rest = torch.eye(len(hat), dtype=torch.float64) - hat
    errors = torch.linalg.solve(rest, (targets - scores).double())
    return targets - errors.float()


def scores_without_records(head: Head, rows: Rows, share: float = 1.0) -> LeftOut:
    """Return a head's scores on a client's records, and without each of them."""
    phi = rows.features.float().div_(FEATURE_STEPS)
    weight = share * rows.weight / WEIGHT_STEPS
    return left_out(
        scores=phi @ head.theta.float(),
        labels=rows.labels,
        leverages=_times_root(phi, head.root).square().sum(dim=1) * weight,
        variances=((phi @ head.covariance) * phi).sum(dim=1),
    )


def _times_root(
    phi: Float32[Tensor, "rows d"], root: Float32[Tensor, "d d"]
) -> Float32[Tensor, "rows d"]:
    """Return phi R; R has nothing below its diagonal, which is not multiplied."""
    d = len(root)
    parts = [phi[:, :end] @ root[:end, start:end] for start, end in blocks(d)]
    return torch.cat(parts, dim=1)


def left_out(
    scores: Scores,
    labels: Int64[Tensor, " rows"],
    leverages: Float[Tensor, " rows"],
    variances: Float[Tensor, " rows"],
) -> LeftOut:
    """Return what heads without each record would answer: t - e / (1 - h)."""
    targets = targets_of(labels, scores)
    errors = (targets - scores) / (1 - leverages).clamp(min=TINY)[:, None]
    return LeftOut(scores, targets - errors, targets, leverages, variances)


def targets_of(labels: Int64[Tensor, " rows"], scores: Scores) -> Scores:
    """Return onehot(y) - 1 / classes, in the type of these scores."""
    classes = scores.shape[1]
    return torch.nn.functional.one_hot(labels, classes).to(scores) - 1 / classes
