"""Client-level differential privacy: updates of bounded length, and Gaussian noise.

Only what training moves is a coordinate of an update. Nothing else of it leaves a client:
buffers do not move.

References:
    McMahan, Ramage, Talwar, Zhang, Learning Differentially Private Recurrent Language
    Models, 2018.
    Andrew, Thakkar, McMahan, Ramaswamy, Differentially Private Learning with Adaptive
    Clipping, 2021, Algorithm 1.
"""

import math
from collections.abc import Iterable, Iterator
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

QUANTILE = 0.5
"""gamma: an adaptive clip follows the median of the updates' norms."""
CLIP_RATE = 0.2
"""eta_C."""
COUNT_NOISE = 1 / 20
"""sigma_b per client."""


@dataclass(frozen=True, slots=True)
class Clipping:
    """How a client hides in the sum of its cluster.

    Attributes:
        clip: C, the largest L2 norm of an update; of the first round, if it adapts.
        noise_multiplier: z, of all that a round tells of the updates together; above 0.
        adaptive: whether the clip follows the median norm of the updates.
        sampling: q, the chance of each client to take part, by a secret coin of its own.
        clients: N, with which a secret cohort has q N clients on average.
    """

    clip: float
    noise_multiplier: float
    adaptive: bool = False
    sampling: float = 1.0
    clients: int = 0


def noised_mean(clipping: Clipping, clips: tuple[float, ...] = ()) -> Aggregator:
    """Return the aggregation that moves every cluster model by a noisy mean of its updates.

    theta_j <- theta_j + (sum_{i in S_j} clip_C(u_i) + N(0, (z C)^2 I)) / n_j
    clip_C(u) = min(1, C / |u|) u

    n_j = |S_j|, and a cluster without clients does not move. A secret cohort's size would
    tell who was in it: then n_j = q N, and there is noise even where nobody came.

    With an adaptive clip the noise on the sum is z' C for z' = (z^-2 - (2 s)^-2)^(-1/2),
    which leaves for the noisy share b of updates that were not clipped, and so for the
    next clip, a standard deviation of s / n_j:

    b = 1/2 + (sum_{i in S_j} ([|u_i| <= C] - 1/2) + N(0, s^2)) / n_j
    C <- C exp(-eta (b - gamma))

    A client changes that count by 1/2 (an update of 0 votes 1/2: like one that is not
    there), so that both together are one Gaussian mechanism of multiplier z. s = n_j /
    20, but at least z: z' exists, and is at most 1.16 z.

    Args:
        clipping: what clips and hides the updates.
        clips: C of each cluster, where it was adapted before.

    References:
        Andrew et al., 2021, Algorithm 1 and Theorem 1.
    """

    def aggregate(
        clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
    ) -> AggregationResult:
        bounds = clips or (clipping.clip,) * len(clusters)
        unclipped: dict[int, float] = {}

        def clipped() -> Iterator[ClientUpdate]:
            for each in updates:
                bound = bounds[each.cluster]
                vote = _vote(norm(each.update), bound)
                unclipped[each.cluster] = unclipped.get(each.cluster, 0.0) + vote
                bounded = projected(each.update, bound)
                yield replace(each, update=bounded, weight=1.0)

        sums, sizes = sum_per_cluster(clipped())
        moved, after = list(clusters), list(bounds)
        facts: list[Event] = []
        for j, model in enumerate(clusters):
            size = sizes.get(j, 0.0)
            n = size if clipping.sampling == 1 else clipping.sampling * clipping.clients
            if n == 0:
                continue
            z, s = _split_noise(clipping, n)
            total = noisy(
                sums.get(j) or _zeros(model),
                z * bounds[j],
                streams.at("sum", j, "noise").draws(),
            )
            moved[j] = add(model, scale(total, 1 / n))
            if clipping.adaptive:
                draws = streams.at("sum", j, "count").draws()
                count = torch.tensor(
                    unclipped.get(j, 0.0) - size / 2, dtype=torch.double
                )
                count = with_noise(count, draws.normal(0.0, s, ()), s, draws)
                b = 1 / 2 + float(count) / n
                after[j] = bounds[j] * math.exp(-CLIP_RATE * (b - QUANTILE))
            facts.append(
                SumPerturbed(j, bounds[j], clipping.noise_multiplier, clipping.sampling)
            )
        return AggregationResult(
            tuple(moved), tuple(facts), clips=tuple(after) if clipping.adaptive else ()
        )

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


def _split_noise(clipping: Clipping, n: float) -> tuple[float, float]:
    """Return the noise multiplier of the sum, and the deviation of the count's noise."""
    z = clipping.noise_multiplier
    if not clipping.adaptive:
        return z, 0.0
    s = max(COUNT_NOISE * n, z)
    return (z**-2 - (2 * s) ** -2) ** -0.5, s


def _vote(length: float, bound: float) -> float:
    if length == 0:
        return 1 / 2
    return float(length <= bound)


def _zeros(model: Params) -> Params:
    return {name: torch.zeros_like(value) for name, value in model.items()}
