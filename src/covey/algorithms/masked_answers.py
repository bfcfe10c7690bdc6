"""What remote clients answer under masks alone: counts of losses, and updates."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from covey.aggregation import ClientUpdate, mean_of_numbers
from covey.algorithms.base import Cohort
from covey.algorithms.client_memory import NO_INPUTS, ObjectiveInputs
from covey.algorithms.local_training import Train
from covey.algorithms.remote import ClientContext, ClientRequest, Send, SumStep
from covey.algorithms.remote_sums import play_sums
from covey.data.examples import Client
from covey.engine.protocol import Recipe
from covey.membership import EDGES, FOLDS, Count, Target
from covey.membership.base import FEWEST_REPORTING
from covey.rng import Streams
from covey.secure_sums import Terms
from covey.types import Handle, Params

__all__ = ["masked_counts", "masked_training", "numbers_of_counts"]

SHAPE = 2, FOLDS, len(EDGES) + 1
"""Of the counts of members and of the others."""


def masked_counts(send: Send, min_cohort: int) -> Count:
    """Return how remote members count together; fewer than so many count nothing.

    Args:
        send: how clients are asked.
        min_cohort: the fewest clients that a sum may be over.
    """

    def count(target: Target, streams: Streams) -> tuple[ndarray, ndarray]:
        length = int(np.prod(SHAPE))
        counts = SumStep("keys", length, "counts")
        bare = ClientRequest("masked", (), (), streams.path, {}, sums=counts)
        whole = replace(bare, models=(target.params,), available=(True,))
        fewest = max(min_cohort, FEWEST_REPORTING)
        groups = [target.members] if len(target.members) >= fewest else []
        played = play_sums(
            send,
            lambda step: whole if step == "masked" else bare,
            groups,
            lambda: Terms.new(length, min_cohort),
            lambda there: [frozenset(there)] * (len(there) >= fewest),
        )
        values = played[0].values if played else None
        if values is None or (values < 0).any():
            values = np.zeros(SHAPE, dtype=np.int64)
        inside, outside = values.reshape(SHAPE)
        return inside, outside

    return count


def masked_training(send: Send, recipe: Recipe, min_cohort: int) -> Train:
    """Return the step in which remote clients train, and send a mean together.

    Every client whose update is in the mean of its cluster yields that mean. Fewer than
    so many in a cluster train nothing.

    Args:
        send: how clients are asked.
        recipe: how they train.
        min_cohort: the fewest clients that a sum may be over.
    """

    def train(
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        shapes = {name: value.shape for name, value in clusters[0].items()}
        length = 1 + sum(shape.numel() for shape in shapes.values())
        updates = SumStep("keys", length, "updates")
        bare = ClientRequest("masked", (), (), streams.path, {}, recipe, sums=updates)
        whole = replace(
            bare,
            models=clusters,
            available=(True,) * len(clusters),
            contexts={
                c.handle: ClientContext(
                    given=assignment[c.handle],
                    memory_round=inputs.memory.rounds.get(c.handle),
                )
                for c in cohort
            },
            round_index=inputs.round_index,
            broadcast=inputs.broadcast,
        )
        groups = _per_cluster(cohort, assignment, min_cohort)
        played = play_sums(
            send,
            lambda step: whole if step == "masked" else bare,
            groups,
            lambda: Terms.new(length, min_cohort),
            lambda there: _per_group(groups, there, min_cohort),
        )
        kept = {} if recipe.keeps_memory else None
        for each in played:
            if each.values is None or each.values[0] <= 0:
                continue
            mean = mean_of_numbers(each.values, shapes)
            for client in each.cohort:
                if client.handle in each.shown:
                    j = assignment[client.handle]
                    yield ClientUpdate(client.handle, j, mean, 1.0, kept)

    return train


def _per_cluster(
    cohort: Cohort, assignment: Mapping[Handle, int], min_cohort: int
) -> list[Cohort]:
    found: dict[int, list[Client]] = defaultdict(list)
    for client in cohort:
        found[assignment[client.handle]].append(client)
    return [tuple(found[j]) for j in sorted(found) if len(found[j]) >= min_cohort]


def _per_group(
    groups: Sequence[Cohort], there: Collection[Handle], min_cohort: int
) -> list[frozenset[Handle]]:
    left = (frozenset(c.handle for c in group) & frozenset(there) for group in groups)
    return [each for each in left if len(each) >= min_cohort]


def numbers_of_counts(
    inside: Int64[ndarray, "folds bins"], outside: Int64[ndarray, "folds bins"]
) -> Int64[ndarray, " numbers"]:
    """Return a client's counts as the numbers that are added up."""
    return np.concatenate([inside.ravel(), outside.ravel()]).astype(np.int64)
