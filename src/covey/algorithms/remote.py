"""Clients that are really apart: what one message asks of them, and what they answer.

A simulation holds everybody's examples and plays both sides. In a federation the server
holds none: it sends models, and each client measures, chooses and trains by itself. What a
client accepts, what it has found out and how it draws stay on its side; the server learns
the cluster, the update and, where the method needs them, counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from covey.aggregation import ClientUpdate
from covey.algorithms.base import Cohort, KnownRisk, ServerState
from covey.clustering import NOWHERE
from covey.engine.protocol import Recipe
from covey.membership import Count, Target
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "Answer",
    "Apart",
    "Call",
    "Reach",
    "Slip",
    "Task",
    "choices_of",
    "counted_by",
    "placed",
    "updates_of",
]

Task = Literal["choose", "train", "place", "settle", "count"]


@dataclass(frozen=True, slots=True)
class Slip:
    """What one client is told of itself.

    Attributes:
        given: the cluster that it trains, or is a member of; None: it is free to choose.
        risks: the valid risk figure of each cluster that is sent to it, if there is one.
        current: the cluster that it chose last, or `NOWHERE`.
        settling: whether it moved too recently to move again.
    """

    given: int | None = None
    risks: tuple[KnownRisk | None, ...] = ()
    current: int = NOWHERE
    settling: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One question to some clients, in one message each.

    Attributes:
        task: "choose" a cluster and train its model; "train" the model of the given one;
            "place": name the model with the lowest loss; "settle": choose, and train
            nothing; "count" own losses under the model of the given cluster.
        models: by cluster. Whoever is given a cluster needs only that one.
        offered: the clusters that may be chosen.
        path: of the streams under which clients draw, each from a seed of its own.
        slips: one per client that is asked.
        recipe: how to train.
        round_index: of the round, where clients measure risks of their own.
    """

    task: Task
    models: tuple[Params, ...]
    offered: tuple[bool, ...]
    path: tuple[str | int, ...]
    slips: Mapping[Handle, Slip]
    recipe: Recipe = field(default_factory=Recipe)
    round_index: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What one client sent back, found to be in order.

    Attributes:
        cluster: the one that it chose, or was given.
        update: local model minus the one that was sent; None where nothing was trained.
        weight: share in a weighted mean, any positive unit.
        members: counts of its losses on the examples it trains on (`loss_counts`).
        held_out: the same of its holdout.
    """

    handle: Handle
    cluster: int
    update: Params | None = None
    weight: float = 1.0
    members: Int[ndarray, "folds bins"] | None = None
    held_out: Int[ndarray, "folds bins"] | None = None


Reach = Callable[[Call, Cohort], tuple[Answer, ...]]
"""A way to ask clients: answers in the order of the cohort, without who gave none."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How clients that are apart are asked, and how they train."""

    reach: Reach
    recipe: Recipe

    def train(
        self,
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
    ) -> Iterator[ClientUpdate]:
        """Let every client train from its cluster's model; yield what comes back."""
        slips = {c.handle: Slip(given=assignment[c.handle]) for c in cohort}
        offered = (True,) * len(clusters)
        call = Call("train", clusters, offered, streams.path, slips, self.recipe)
        yield from updates_of(self.reach(call, cohort))


def counted_by(reach: Reach) -> Count:
    """Return how members that are apart count their losses for a red team."""

    def count(target: Target, streams: Streams) -> tuple[ndarray, ndarray]:
        slips = {member.handle: Slip(given=0) for member in target.members}
        call = Call("count", (target.params,), (True,), streams.path, slips)
        answers = reach(call, target.members) if target.members else ()
        return (
            _summed([each.members for each in answers]),
            _summed([each.held_out for each in answers]),
        )

    return count


def _summed(counts: Sequence[ndarray | None]) -> ndarray:
    told = [each for each in counts if each is not None]
    return np.sum(told, axis=0) if told else np.zeros((1, 1), dtype=np.int64)


def choices_of(answers: tuple[Answer, ...]) -> dict[Handle, int]:
    """Return which cluster each client named."""
    return {each.handle: each.cluster for each in answers}


def updates_of(answers: tuple[Answer, ...]) -> tuple[ClientUpdate, ...]:
    """Return what the clients trained."""
    return tuple(
        ClientUpdate(each.handle, each.cluster, each.update, each.weight)
        for each in answers
        if each.update is not None
    )


def placed(
    reach: Reach, state: ServerState, cohort: Cohort, streams: Streams
) -> dict[Handle, int]:
    """Ask clients which cluster's model has the lowest loss on their examples."""
    if not cohort:
        return {}
    slips = {client.handle: Slip() for client in cohort}
    offered = (True,) * len(state.clusters)
    call = Call("place", state.clusters, offered, streams.path, slips)
    return choices_of(reach(call, cohort))
