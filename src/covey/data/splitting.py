"""Which images of a data set each client holds, and which are kept aside."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from covey.data.partition import divide
from covey.data.source import Source
from covey.data.spec import PopulationSpec
from covey.errors import DataError
from covey.rng import Streams

__all__ = ["Dealt", "deal"]

Indices = Int[Tensor, "_"]


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Indices into the training file; those kept aside belong to no client.

    Attributes:
        own: per client.
        audit: kept aside as non-members.
        test: kept aside to test with; none where the publisher has a test file.
        pool: kept aside for the server.
    """

    own: tuple[Indices, ...]
    audit: Indices
    test: Indices
    pool: Indices


def deal(
    source: Source, spec: PopulationSpec, group_of: list[int], streams: Streams
) -> Dealt:
    """Deal a data set's training images out.

    Args:
        source: the data set.
        spec: how to deal.
        group_of: index of each client's group.
        streams: of the partition.

    Raises:
        DataError: there are too few images.
    """
    sizes = [spec.groups[group].examples_per_client for group in group_of]
    tables = _tables(spec, group_of)
    need = max(sum(sizes[client] for client in table) for table in tables.values())
    aside = _aside(source, spec, need)
    beyond = len(source.train) - need - sum(aside)
    dealt, audit, test, pool, rest = divide(
        len(source.train), [need, *aside, beyond], streams.generator()
    )
    cards = torch.cat([dealt, rest])
    own: dict[int, Indices] = {}
    for name, table in tables.items():
        if spec.images == "per-group":
            cards = _shuffled(cards, streams.at(name))
        hands = _hands(
            source, spec, cards, [sizes[c] for c in table], streams.at(name, "hands")
        )
        own |= dict(zip(table, hands, strict=True))
    return Dealt(tuple(own[client] for client in range(len(sizes))), audit, test, pool)


def _tables(spec: PopulationSpec, group_of: list[int]) -> dict[str, list[int]]:
    """Return which clients share a deck, in which each image is once, by a name for it."""
    if spec.images == "disjoint":
        return {"everybody": list(range(len(group_of)))}
    return {
        spec.groups[here].name: [c for c, group in enumerate(group_of) if group == here]
        for here in sorted(set(group_of))
    }


def _hands(
    source: Source,
    spec: PopulationSpec,
    cards: Indices,
    sizes: list[int],
    streams: Streams,
) -> Sequence[Indices]:
    """Return who gets which of the cards, which lie in random order."""
    hands = spec.partition.deal(source, cards, sizes, streams.generator())
    found, all_dealt = [len(hand) for hand in hands], torch.cat(list(hands))
    apart = len(all_dealt.unique()) == len(all_dealt)
    if found != sizes or not apart or not torch.isin(all_dealt, cards).all():
        raise DataError(
            f"{type(spec.partition).__name__} must deal {sizes} of the cards to "
            f"{len(sizes)} clients, and no card twice, found hands of {found}. Return "
            f"indices out of `cards`."
        )
    return hands


def _shuffled(cards: Indices, streams: Streams) -> Indices:
    (order,) = divide(len(cards), [len(cards)], streams.generator())
    return cards[order]


def _aside(source: Source, spec: PopulationSpec, need: int) -> list[int]:
    """Return how many images are kept for audit, test and pool."""
    left = len(source.train) - need - spec.audit_examples
    has_test = source.test is not None
    least_test = 0 if has_test else 1
    if left < max(spec.pool, 0) + least_test:
        whose = f"{spec.clients:,} clients"
        if spec.images == "per-group":
            whose = "the clients of its largest group"
        raise DataError(
            f"The population needs {need:,} images for {whose}, "
            f"{spec.audit_examples:,} for the audit, {max(spec.pool, 0):,} for the pool "
            f"and at least {least_test} to test with, but {source.name} has "
            f"{len(source.train):,}. Lower population.clients, "
            f"population.examples_per_client, population.audit_examples or redteam.pool."
        )
    if spec.partition.is_selective:
        # Half of what could be spared stays in the deck: who can only take the last
        # images there are has no class mix of its own, and no writer.
        left -= (left - max(spec.pool, 0) - least_test) // 2
    rest = left if has_test else left // 2
    pool = {-1: 0, 0: rest}.get(spec.pool, spec.pool)
    return [spec.audit_examples, 0 if has_test else left - pool, pool]
