"""Who gets which of a data set's examples: at random, by Dirichlet class mixes, by writer."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from covey.base.built_ins import component
from covey.base.components import AboveZero, Component
from covey.base.errors import DataError
from covey.data.examples import PublishedData

Positions = Int[Tensor, "_"]


class Partition(Component):
    """How the images of a data set are dealt to clients.

    Write `deal`; what it needs to know are fields:

        class Sorted(covey.Partition):
            def deal(self, source, cards, sizes, generator):
                ordered = cards[source.classes[cards].argsort(stable=True)]
                return ordered[: sum(sizes)].split(sizes)
    """

    needs_data_set: ClassVar[bool] = False
    """Whether examples must be dealt out of one data set."""
    is_selective: ClassVar[bool] = True
    """Whether a client gets images of some kinds. Then half of what could be spared is
    left to be dealt from: who can only take the last images has no kinds of its own."""

    def deal(
        self,
        source: PublishedData,
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


@component("partition", "iid", default=True)
class Iid(Partition):
    """Every client gets images at random."""

    is_selective: ClassVar[bool] = False

    def deal(
        self,
        source: PublishedData,  # noqa: ARG002
        cards: Positions,
        sizes: Sequence[int],
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Sequence[Positions]:
        """Deal the cards as they lie."""
        return cards[: sum(sizes)].split(list(sizes))


@component("partition", "dirichlet")
class Dirichlet(Partition):
    """Each client has a class mix of its own, p_i ~ Dirichlet(alpha, ..., alpha).

    What a class no longer has comes from the others. Of several labels, the one nearest to
    half and half counts as the class.

    Attributes:
        alpha: small: few classes per client; large: all clients alike.

    References:
        Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution for
        Federated Visual Classification, 2019.
    """

    needs_data_set: ClassVar[bool] = True

    alpha: AboveZero = 0.5

    def deal(
        self,
        source: PublishedData,
        cards: Positions,
        sizes: Sequence[int],
        generator: np.random.Generator,
    ) -> Sequence[Positions]:
        """Fill one client after the other, and deal a class in the order of the cards.

        The client's classes ~ Multinomial(size_i, p_i). What a class no longer has is drawn
        again, by p_i over the classes that are left.
        """
        classes = _positions_by_value(source.classes[cards])
        left = np.array([len(positions) for positions in classes])
        hands: list[Positions] = []
        for size in sizes:
            p = generator.dirichlet(np.full(len(classes), self.alpha))
            counts = _drawn_classes(size, p, left, generator)
            own = [
                positions[len(positions) - rest :][:count]
                for positions, rest, count in zip(classes, left, counts, strict=True)
            ]
            order = torch.from_numpy(generator.permutation(size))
            hands.append(cards[torch.cat(own)[order]])
            left = left - counts
        return hands


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


@component("partition", "by-writer")
class ByWriter(Partition):
    """Each client has one writer's images, where the files name writers."""

    needs_data_set: ClassVar[bool] = True

    def deal(
        self,
        source: PublishedData,
        cards: Positions,
        sizes: Sequence[int],
        generator: np.random.Generator,
    ) -> Sequence[Positions]:
        """Draw a writer for each client, among those that have enough.

        The largest hands draw first: what is left to the smaller ones is enough whenever it
        could be.

        Raises:
            DataError: the writers are unknown, or there are too few.
        """
        if source.writers is None:
            raise DataError(
                f"population.partition = 'by-writer' needs files that name writers, found none in "
                f"{source.name}: choose another partition or data set."
            )
        stacks = _positions_by_value(source.writers[cards])
        amounts = np.array([len(stack) for stack in stacks])
        free = np.ones(len(stacks), dtype=bool)
        hands = [cards[:0]] * len(sizes)
        for turn, client in enumerate(sorted(range(len(sizes)), key=lambda at: -sizes[at])):
            enough = np.flatnonzero(free & (amounts >= sizes[client]))
            if len(enough) == 0:
                raise DataError(
                    f"Each of {len(sizes):,} clients must have a writer of its own, with up to "
                    f"{sizes[client]:,} images that are not kept aside, found {turn:,}: lower "
                    f"population.clients, .examples_per_client or .audit_examples."
                )
            writer = generator.choice(enough)
            free[writer] = False
            order = torch.from_numpy(generator.permutation(amounts[writer]))
            hands[client] = cards[stacks[writer][order[: sizes[client]]]]
        return hands


def _positions_by_value(values: Int[Tensor, " count"]) -> Sequence[Positions]:
    """Return where each value that occurs stands, in ascending order."""
    _, counts = values.unique(return_counts=True)
    return values.argsort(stable=True).split(counts.tolist())


def apportion(total: int, shares: Sequence[float] | Sequence[int]) -> list[int]:
    """Round shares of `total` to whole numbers that add up to it.

    The largest remainders are rounded up, the earlier of two equal ones first. Shares
    count relative to their sum.
    """
    quotas = np.asarray(shares) * total / sum(shares)
    counts = np.floor(quotas).astype(int)
    by_remainder = np.argsort(counts - quotas, kind="stable")
    counts[by_remainder[: total - counts.sum()]] += 1
    return counts.tolist()
