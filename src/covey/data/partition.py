"""Who gets which of the examples, as index blocks that never overlap."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["apportion", "divide"]


def divide(
    count: int, sizes: Sequence[int], generator: np.random.Generator
) -> list[Int[Tensor, "_"]]:
    """Cut one random permutation of `range(count)` into consecutive blocks.

    The sizes add up to `count` at most; what is beyond them is given to nobody.
    """
    order = torch.from_numpy(generator.permutation(count))
    edges = np.cumsum([0, *sizes]).tolist()
    return [order[start:stop] for start, stop in pairwise(edges)]


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Round shares of `total` to whole numbers that add up to it.

    The largest remainders are rounded up, the earlier of two equal ones first. Shares
    count relative to their sum.
    """
    quotas = np.asarray(shares) * total / sum(shares)
    counts = np.floor(quotas).astype(int)
    by_remainder = np.argsort(counts - quotas, kind="stable")
    counts[by_remainder[: total - counts.sum()]] += 1
    return counts.tolist()
