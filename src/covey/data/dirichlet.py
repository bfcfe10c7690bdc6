"""Clients that have a class mix of their own each."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from pydantic import Field
from torch import Tensor

from covey.components.capability import Capability
from covey.data.partition import Partition, positions_by_value
from covey.data.source import Source

__all__ = ["Dirichlet", "divide_by_class"]

Positions = Int[Tensor, "_"]


class Dirichlet(Partition):
    """p_i ~ Dirichlet(alpha, ..., alpha), the class mix of client i.

    What a class no longer has comes from the others.

    References:
        Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution for
        Federated Visual Classification, 2019.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.DATA_SET})

    dirichlet_alpha: Annotated[float, Field(gt=0)] = 0.5

    def deal(
        self,
        source: Source,
        cards: Positions,
        sizes: Sequence[int],
        generator: np.random.Generator,
    ) -> Sequence[Positions]:
        """Fill one client after the other."""
        labels, alpha = source.classes[cards], self.dirichlet_alpha
        blocks = divide_by_class(labels, sizes, alpha, generator)
        return [cards[each] for each in blocks]


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
    classes = positions_by_value(labels)
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
