"""Anonymity sets whose members are all within Delta of each other.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Algorithm 1: "clusters based on some Delta parameter".
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from covey.aggregation.partition import Sets, diameters, unit_rows
from covey.base.names import Distance


def sets_within(
    points: Float[Tensor, "n d"], sets: Sets, k: int, most: float, by: Distance
) -> Sets:
    """Return sets of diameter Delta at most; some points may be in none.

    1. The sets C_c with max_{i, j in C_c} |u_i - u_j| <= Delta stay as they are.
    2. Points that are left, in the order of the distance of their (k-1)-th nearest:
       S_i = {i and the k - 1 nearest that are left}, where its diameter is Delta at most.
    3. Every point that is left then joins the first set of fewer than 2k - 1 points that has
       a diameter of Delta at most with it.

    Sets have k to 2k - 1 points, and without a limit they are what they were. Points in no
    set have fewer than k - 1 others of these within Delta / 2 (Delta / 4 by cosine): else
    they would be a set. Points that are not finite are in none.

    Args:
        points: in their rows.
        sets: a partition of all points into sets of k to 2k - 1.
        k: the least points of a set.
        most: Delta.
        by: what it is measured by.
    """

    def fits(members: Sequence[int]) -> bool:
        return diameters(points, (tuple(members),), by)[0] <= most

    within = [list(indices) for indices in sets if fits(indices)]
    taken = {i for indices in within for i in indices}
    left = [i for i in range(len(points)) if i not in taken and points[i].isfinite().all()]
    apart = _distances(points[left], by)
    free = np.ones(len(left), dtype=bool)
    reach = np.sort(apart, axis=1)[:, k - 1] if len(left) >= k else np.empty(0)
    for i in np.argsort(reach, kind="stable"):
        nearest = np.argsort(np.where(free, apart[i], np.inf), kind="stable")[:k]
        members = [left[j] for j in nearest]
        if free[i] and free[nearest].all() and fits(members):
            free[nearest] = False
            within.append(members)
    for i in (left[j] for j in np.flatnonzero(free)):
        room = (indices for indices in within if len(indices) < 2 * k - 1 and fits([*indices, i]))
        if (joined := next(room, None)) is not None:
            joined.append(i)
    return tuple(sorted(tuple(sorted(indices)) for indices in within))


def _distances(points: Float[Tensor, "n d"], by: Distance) -> Float[ndarray, "n n"]:
    """Return what orders all points by how near they are; a point comes first to itself.

    By inner products, which is fast for many points; `diameters` then measures a set exactly.
    """
    rows = (unit_rows(points) if by == "cosine" else points).double()
    apart = torch.cdist(rows, rows).fill_diagonal_(-1)
    return apart.numpy()
