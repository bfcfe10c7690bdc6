"""Clients that have one writer's images each."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from covey.components.capability import Capability
from covey.data.partition import Partition, positions_by_value
from covey.data.source import Source
from covey.errors import DataError

__all__ = ["ByWriter", "divide_by_writer"]

Positions = Int[Tensor, "_"]


class ByWriter(Partition):
    """Each client has one writer's images, where the files name writers."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.DATA_SET})

    def deal(
        self,
        source: Source,
        cards: Positions,
        sizes: Sequence[int],
        generator: np.random.Generator,
    ) -> Sequence[Positions]:
        """Draw a writer for each client.

        Raises:
            DataError: nobody knows the writers, or there are too few.
        """
        if source.writers is None:
            raise DataError(
                f"population.partition = 'by-writer' needs to know who wrote each image, "
                f"which {source.name}'s files do not say. Choose another partition, or a "
                f"data set whose files name writers."
            )
        blocks = divide_by_writer(source.writers[cards], sizes, generator)
        return [cards[each] for each in blocks]


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
    stacks = positions_by_value(writers)
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
