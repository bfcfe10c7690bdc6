"""A partition of a user's own: each client gets some shards of the images, by class.

References:
    McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data, 2017, section 3: two shards of images that are sorted by digit.
"""

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

import covey


class Shards(covey.Partition):
    """Sort by class, cut into shards, and deal every client so many of them."""

    shards_per_client: int = Field(default=2, gt=0)

    def deal(
        self,
        source: covey.PublishedData,
        cards: Tensor,
        sizes: Sequence[int],
        generator: np.random.Generator,
    ) -> list[Tensor]:
        count = self.shards_per_client
        smaller = [size // count for size in sizes]
        rest = [size - (count - 1) * share for size, share in zip(sizes, smaller, strict=True)]
        owners = [*range(len(sizes))] * count
        lengths = smaller * (count - 1) + rest
        order = generator.permutation(len(owners)).tolist()
        used = cards[: sum(sizes)]
        ordered = used[source.classes[used].argsort(stable=True)]
        hands: list[list[Tensor]] = [[] for _ in sizes]
        shards = ordered.split([lengths[i] for i in order])
        for i, shard in zip(order, shards, strict=True):
            hands[owners[i]].append(shard)
        return [torch.cat(hand) for hand in hands]
