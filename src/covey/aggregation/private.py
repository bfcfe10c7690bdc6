"""Client-level differential privacy: updates of bounded length, and Gaussian noise.

Only what training moves is a coordinate of an update. Nothing else of it leaves a client:
buffers do not move.

References:
    McMahan, Ramage, Talwar, Zhang, Learning Differentially Private Recurrent Language
    Models, 2018.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from covey.aggregation.merging import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    sum_per_cluster,
)
from covey.events import Event, SumPerturbed
from covey.params import add, norm, scale, trained
from covey.rng import Draws, Streams, with_noise
from covey.types import Params

__all__ = ["Clipping", "noised_mean", "noisy", "projected"]


@dataclass(frozen=True, slots=True)
class Clipping:
    """How a client hides in the sum of its cluster.

    Attributes:
        clip: C, the largest L2 norm of an update.
        noise_multiplier: z, of all that a round tells of the updates together; above 0.
        sampling: q, the chance of each client to take part, by a secret coin of its own.
        clients: N, with which a secret cohort has q N clients on average.
    """

    clip: float
    noise_multiplier: float
    sampling: float = 1.0
    clients: int = 0


def noised_mean(clipping: Clipping) -> Aggregator:
    """Return the aggregation that moves every cluster model by a noisy mean of its updates.

    theta_j <- theta_j + (sum_{i in S_j} clip_C(u_i) + N(0, (z C)^2 I)) / n_j
    clip_C(u) = min(1, C / |u|) u

    n_j = |S_j|, and a cluster without clients does not move. A secret cohort's size would
    tell who was in it: then n_j = q N, and there is noise even where nobody came.
    """

    def aggregate(
        clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
    ) -> AggregationResult:
        bounded = (
            replace(each, update=projected(each.update, clipping.clip), weight=1.0)
            for each in updates
        )
        sums, sizes = sum_per_cluster(bounded)
        moved, facts = list(clusters), list[Event]()
        z, sampling = clipping.noise_multiplier, clipping.sampling
        for j, model in enumerate(clusters):
            n = sizes.get(j, 0.0) if sampling == 1 else sampling * clipping.clients
            if n == 0:
                continue
            total = noisy(
                sums.get(j) or _zeros(model),
                z * clipping.clip,
                streams.at("sum", j, "noise").draws(),
            )
            moved[j] = add(model, scale(total, 1 / n))
            facts.append(SumPerturbed(j, clipping.clip, z, sampling))
        return AggregationResult(tuple(moved), tuple(facts))

    return aggregate


def projected(update: Params, radius: float) -> Params:
    """Return the point of the L2 ball around 0 that is nearest: min(1, radius / |u|) u.

    An update that is not finite, of a training that diverged, becomes 0.
    """
    length = norm(update)
    factor = radius / max(radius, length)
    coordinates = trained(update) if length < math.inf else {}
    return {
        name: value * factor if name in coordinates else torch.zeros_like(value)
        for name, value in update.items()
    }


def noisy(update: Params, std: float, draws: Draws) -> Params:
    """Return the update with Gaussian noise on each coordinate."""
    noised = {
        name: with_noise(value, draws.normal(0.0, std, tuple(value.shape)), std, draws)
        for name, value in sorted(trained(update).items())
    }
    return {name: noised.get(name, value) for name, value in update.items()}


def _zeros(model: Params) -> Params:
    return {name: torch.zeros_like(value) for name, value in model.items()}
