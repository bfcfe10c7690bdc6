"""Who gets which of the examples, as index blocks that never overlap."""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from covey.components.component import Component
from covey.data.source import Source

__all__ = ["Iid", "Partition", "apportion", "divide", "positions_by_value"]

Positions = Int[Tensor, "_"]


class Partition(Component):
    """How the images of a data set are dealt to clients.

    Write `deal`; what it needs to know are fields:

        class Sorted(covey.Partition):
            def deal(self, source, cards, sizes, generator):
                ordered = cards[source.classes[cards].argsort(stable=True)]
                return ordered[: sum(sizes)].split(sizes)
    """

    is_selective: ClassVar[bool] = True
    """Whether a client gets images of some kinds. Then half of what could be spared is
    left to be dealt from: who can only take the last images has no kinds of its own."""

    def deal(
        self,
        source: Source,
        cards: Positions,
        sizes: Sequence[int],
        generator: np.random.Generator,
    ) -> Sequence[Positions]:
        """Return for each client which of the cards it gets; no card is dealt twice.

        Args:
            source: the data set.
            cards: indices of its training images, in random order, at least as many as
                the sizes add up to.
            sizes: how many images each client gets.
            generator: all that is drawn must come from it.

        Raises:
            DataError: the images cannot be dealt so.
        """
        raise NotImplementedError


class Iid(Partition):
    """Every client gets images at random."""

    is_selective: ClassVar[bool] = False

    def deal(
        self,
        source: Source,  # noqa: ARG002
        cards: Positions,
        sizes: Sequence[int],
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Sequence[Positions]:
        """Deal the cards as they lie."""
        return cards[: sum(sizes)].split(list(sizes))


def divide(
    count: int, sizes: Sequence[int], generator: np.random.Generator
) -> list[Positions]:
    """Cut one random permutation of `range(count)` into consecutive blocks.

    The sizes add up to `count` at most; what is beyond them is given to nobody.
    """
    order = torch.from_numpy(generator.permutation(count))
    edges = np.cumsum([0, *sizes]).tolist()
    return [order[start:stop] for start, stop in pairwise(edges)]


def positions_by_value(values: Int[Tensor, " count"]) -> Sequence[Positions]:
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
