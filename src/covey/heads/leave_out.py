"""What a head would answer without a client, as long as lambda's unit stays.

That is what a client compares heads by. It says nothing of who knows what from a head.

With e = t - p the errors on a client's records, R R^T = M^-1 and w the weight with which
they stand in the system of the head:

    H = w Phi M^-1 Phi^T = w (Phi R) (Phi R)^T
    error without the client = (I - H)^-1 e                   (block leave-out)
"""

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from covey.heads.blocks import blocks
from covey.heads.grid import FEATURE_STEPS, WEIGHT_STEPS
from covey.heads.solving import Head, SentHead
from covey.heads.sums import Rows

__all__ = ["scores_without_client", "targets_of"]

Scores = Float[Tensor, "rows classes"]


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


def _times_root(
    phi: Float32[Tensor, "rows d"], root: Float32[Tensor, "d d"]
) -> Float32[Tensor, "rows d"]:
    """Return phi R; R has nothing below its diagonal, which is not multiplied."""
    d = len(root)
    parts = [phi[:, :end] @ root[:end, start:end] for start, end in blocks(d)]
    return torch.cat(parts, dim=1)


def targets_of(labels: Int64[Tensor, " rows"], scores: Scores) -> Scores:
    """Return onehot(y) - 1 / classes, in the type of these scores."""
    classes = scores.shape[1]
    return torch.nn.functional.one_hot(labels, classes).to(scores) - 1 / classes
