"""Leaving records out of heads of many regularisations: one decomposition for all."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from covey.heads.grid import FEATURE_STEPS, WEIGHT_STEPS
from covey.heads.leave_out import LeftOut, left_out
from covey.heads.solving import unit_of
from covey.heads.sums import Rows, Sums

__all__ = ["left_out_along"]


def left_out_along(
    own: Sums,
    others: Sums,
    pooling: float,
    regularisations: Sequence[float],
    rows: Sequence[Rows],
) -> Iterator[LeftOut]:
    """Yield what `scores_without_records` returns of each regularisation's head.

    With A_j + gamma A_rest = Q D Q^T, a head's M is Q (D + lambda m) Q^T.

    Args:
        own: sums of the cluster.
        others: sums of all other clusters.
        pooling: gamma.
        regularisations: lambda, one after the other.
        rows: of clients of the cluster.
    """
    system, targets = own.matrices(others, pooling)
    values, basis = torch.linalg.eigh(system)
    varying = own.matrices(others, pooling**2)[0] if 0 < pooling < 1 else system
    turned_noise = (basis.T @ varying @ basis).float()
    turned_targets, unit = basis.T @ targets, unit_of(own, others)
    turned = _features(rows) @ basis.float()
    labels, weights = _labels(rows), _weights(rows)
    for regularisation in regularisations:
        shrunk = values.clamp(min=0) + regularisation * unit
        solved = turned / shrunk.float()
        yield left_out(
            scores=solved @ turned_targets.float(),
            labels=labels,
            leverages=weights * (solved * turned).sum(dim=1),
            variances=((solved @ turned_noise) * solved).sum(dim=1),
        )


def _features(rows: Sequence[Rows]) -> Float32[Tensor, "records d"]:
    return torch.cat([each.features.float() for each in rows]) / FEATURE_STEPS


def _labels(rows: Sequence[Rows]) -> Int64[Tensor, " records"]:
    return torch.cat([each.labels for each in rows])


def _weights(rows: Sequence[Rows]) -> Float32[Tensor, " records"]:
    each = [torch.full((len(own),), own.weight / WEIGHT_STEPS) for own in rows]
    return torch.cat(each)
