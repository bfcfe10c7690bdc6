"""Which images of a data set each client holds, and which are kept aside."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from covey.data.partition import divide
from covey.data.sources import Source
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
    need = max(sum(sizes[client] for client in table) for table in tables)
    aside = _aside(source, spec, need)
    beyond = len(source.train) - need - sum(aside)
    dealt, audit, test, pool, rest = divide(
        len(source.train), [need, *aside, beyond], streams.generator()
    )
    cards = torch.cat([dealt, rest])
    own: dict[int, Indices] = {}
    for table in tables:
        if spec.images == "per-group":
            cards = _shuffled(cards, streams.at(spec.groups[group_of[table[0]]].name))
        hands = cards[: sum(sizes[c] for c in table)].split([sizes[c] for c in table])
        own |= dict(zip(table, hands, strict=True))
    return Dealt(tuple(own[client] for client in range(len(sizes))), audit, test, pool)


def _tables(spec: PopulationSpec, group_of: list[int]) -> list[list[int]]:
    """Return which clients are dealt from one deck, in which each image is once."""
    if spec.images == "disjoint":
        return [list(range(len(group_of)))]
    return [
        [client for client, group in enumerate(group_of) if group == here]
        for here in sorted(set(group_of))
    ]


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
    rest = left if has_test else left // 2
    pool = {-1: 0, 0: rest}.get(spec.pool, spec.pool)
    return [spec.audit_examples, 0 if has_test else left - pool, pool]
