"""Who gets which of the examples, as index blocks that never overlap."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from covey.errors import DataError

__all__ = ["apportion", "divide", "divide_by_class", "divide_by_writer"]

Positions = Int[Tensor, "_"]


def divide(
    count: int, sizes: Sequence[int], generator: np.random.Generator
) -> list[Positions]:
    """Cut one random permutation of `range(count)` into consecutive blocks.

    The sizes add up to `count` at most; what is beyond them is given to nobody.
    """
    order = torch.from_numpy(generator.permutation(count))
    edges = np.cumsum([0, *sizes]).tolist()
    return [order[start:stop] for start, stop in pairwise(edges)]


def divide_by_class(
    labels: Int[Tensor, " count"],
    sizes: Sequence[int],
    alpha: float,
    generator: np.random.Generator,
) -> list[Positions]:
    """Fill each block with classes in proportions of its own; return positions.

    p_i ~ Dirichlet(alpha, ..., alpha) and the block's classes ~ Multinomial(size_i, p_i).
    What a class no longer has is drawn again, by p_i over the classes that are left.
    Blocks come one after the other, and a class is dealt in the order of `labels`.

    Args:
        labels: the class of each position.
        sizes: of the blocks; they add up to the number of labels at most.
        alpha: above 0; small: few classes per block, large: all blocks alike.
        generator: draws p_i, the classes, and the order inside each block.
    """
    classes = _positions_by_value(labels)
    left = np.array([len(positions) for positions in classes])
    blocks: list[Positions] = []
    for size in sizes:
        p = generator.dirichlet(np.full(len(classes), alpha))
        counts = _drawn_classes(size, p, left, generator)
        starts = [len(positions) for positions in classes] - left
        mine = torch.cat(
            [
                positions[start : start + count]
                for positions, start, count in zip(classes, starts, counts, strict=True)
            ]
        )
        blocks.append(mine[torch.from_numpy(generator.permutation(size))])
        left = left - counts
    return blocks


def _drawn_classes(
    size: int,
    p: Float64[np.ndarray, " classes"],
    left: Int64[np.ndarray, " classes"],
    generator: np.random.Generator,
) -> Int64[np.ndarray, " classes"]:
    """Draw how many of each class, by `p` and at most what is `left` of it."""
    counts = np.zeros_like(left)
    while missing := size - counts.sum():
        free = left - counts
        weights = np.where(free > 0, p, 0)
        if weights.sum() == 0:  # p is for classes that are all gone
            weights = free
        drawn = generator.multinomial(missing, weights / weights.sum())
        counts = np.minimum(counts + drawn, left)
    return counts


def divide_by_writer(
    writers: Int[Tensor, " count"], sizes: Sequence[int], generator: np.random.Generator
) -> list[Positions]:
    """Fill each block from one writer, drawn among those that have enough.

    No writer is in two blocks. The largest blocks draw first: what is left to the smaller
    ones is enough whenever it could be.

    Args:
        writers: the writer of each position.
        sizes: of the blocks.
        generator: draws the writers, and which of a writer's positions.

    Returns:
        Positions per block.

    Raises:
        DataError: there are too few writers.
    """
    stacks = _positions_by_value(writers)
    amounts = np.array([len(stack) for stack in stacks])
    free = np.ones(len(stacks), dtype=bool)
    blocks = dict.fromkeys(range(len(sizes)), torch.empty(0, dtype=torch.int64))
    for turn, block in enumerate(sorted(blocks, key=lambda each: -sizes[each])):
        enough = np.flatnonzero(free & (amounts >= sizes[block]))
        if len(enough) == 0:
            raise DataError(
                f"Each client's images must come from a writer of its own, so "
                f"{len(sizes):,} clients need {turn + 1:,} writers with {sizes[block]:,} "
                f"images or more that are not kept aside, found {turn:,}. Lower "
                f"population.clients or population.examples_per_client, or keep less "
                f"aside (population.audit_examples, redteam.pool)."
            )
        writer = generator.choice(enough)
        free[writer] = False
        order = torch.from_numpy(generator.permutation(amounts[writer]))
        blocks[block] = stacks[writer][order[: sizes[block]]]
    return list(blocks.values())


def _positions_by_value(values: Int[Tensor, " count"]) -> Sequence[Positions]:
    """Return where each value that occurs stands, in ascending order."""
    _, counts = values.unique(return_counts=True)
    return values.argsort(stable=True).split(counts.tolist())


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
