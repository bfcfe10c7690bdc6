"""The weighted mean of clients' updates: without noise, under noise, or under masks.

Under client-level differential privacy updates are clipped to a norm, and Gaussian noise is added
to their sum. An update then has trained parameters alone, and buffers stay as they are.

References:
    McMahan, Ramage, Talwar, Zhang, Learning Differentially Private Recurrent Language
    Models, 2018.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int64

from covey.aggregation.base import (
    Aggregation,
    AggregationResult,
    Aggregator,
    AtOnce,
    BeginRound,
    ClientUpdate,
    ClusterMeans,
    FederationInfo,
    combined_per_cluster,
)
from covey.aggregation.server import Models
from covey.base.built_ins import component
from covey.base.errors import ModelError
from covey.base.events import ClusterWaited, Event, SharesPerturbed, SumPerturbed
from covey.base.names import Params, Unit
from covey.base.params import add, norm, scale, trained
from covey.base.rng import Draws, Streams, with_noise
from covey.secure_sums.noise import NoiseShares
from covey.secure_sums.server import secure_sum

NoiseShape = Literal["gaussian", "laplace"]

PostProcess = Callable[[ClientUpdate], ClientUpdate]
"""What an update passes before it is aggregated."""


STEPS = 2**24
"""Steps of the grid in 1."""

LARGEST = 2.0**15
"""Entries of an update are cut to it, so that sums of many fit the ring."""

RING = 2**63


def clipped(most: float, weight: Callable[[ClientUpdate], float] = lambda _: 1.0) -> PostProcess:
    """Return what bounds every update, and lets all clients count alike.

    clip_C(u) = min(1, C / |u|) u

    A client that counts with a weight w below 1 adds at most w C to a sum.
    """
    return lambda update: replace(
        update, update=projected(update.update, most), weight=weight(update)
    )


def noised(clip: float, noise_multiplier: float) -> PostProcess:
    """Return how every client hides its update before it is sent.

    u_i + N(0, (z C / w_i)^2 I), of noise that is the client's own
    """

    def alone(update: ClientUpdate) -> ClientUpdate:
        draws = streams_of(update).draws()
        std = noise_multiplier * clip / update.weight
        return replace(update, update=noisy(update.update, std, draws))

    return alone


def streams_of(update: ClientUpdate) -> Streams:
    """Return the streams from which a client draws its own noise.

    Raises:
        ModelError: the update is none that was trained here.
    """
    if update.streams is None:
        raise ModelError(
            "A client must add noise to its own update, found another: let `clients.train` make it."
        )
    return update.streams


class NoisyMeans(ClusterMeans):
    """Move every cluster model by a noisy mean of its updates.

    theta_j <- theta_j + (sum_{i in S_j} u_i + N(0, (z C)^2 I)) / n_j

    Each u_i has passed `clipped`, by the same C; or it is a sum over records, of which each
    adds C at most (`covey.engine.example_gradients`).

    n_j = |S_j|, and a cluster without clients does not move. A secret cohort's size would
    show who was in it: then n_j = q N, and there is noise even where no client came.

    Args:
        models: of the clusters.
        streams: of the noise.
        clip: C, the largest L2 norm of what a client, or a record, adds.
        noise_multiplier: z, above 0.
        sampling: q, the chance of each client to take part, by a secret coin of its own.
        clients: N, with which a secret cohort has q N clients on average.
        unit: what hides.
    """

    def __init__(
        self,
        models: Models,
        streams: Streams,
        *,
        clip: float,
        noise_multiplier: float,
        sampling: float = 1.0,
        clients: int = 0,
        unit: Unit = "client",
    ) -> None:
        super().__init__(models)
        self._streams, self._expected = streams, None if sampling == 1 else sampling * clients
        self._std = noise_multiplier * clip
        self._fact = partial(
            SumPerturbed, clip=clip, noise_multiplier=noise_multiplier, sampling=sampling, unit=unit
        )

    def result(self) -> AggregationResult:
        """Return the models, each moved by its noisy mean."""
        moved, facts = list(self.models), list[Event]()
        for j, model in enumerate(self.models):
            n = self.weights.get(j, 0.0) if self._expected is None else self._expected
            if n == 0:
                continue
            total = self.sums.get(j) or {name: torch.zeros_like(v) for name, v in model.items()}
            draws = self._streams.at("sum", j, "noise").draws()
            moved[j] = add(model, scale(noisy(total, self._std, draws), 1 / n))
            facts.append(self._fact(j))
        return AggregationResult(tuple(moved), tuple(facts))


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


def noisy(update: Params, std: float, draws: Draws, shape: NoiseShape = "gaussian") -> Params:
    """Return the update with noise of this standard deviation on each coordinate.

    gaussian: N(0, std^2). laplace: density exp(-|t| / b) / (2 b), b = std / sqrt(2), of
    variance 2 b^2 = std^2.
    """

    def drawn(size: tuple[int, ...]) -> np.ndarray:
        if shape == "laplace":
            return draws.laplace(0.0, std / math.sqrt(2), size)
        return draws.normal(0.0, std, size)

    noised = {
        name: with_noise(value, drawn(tuple(value.shape)), std, draws)
        for name, value in sorted(trained(update).items())
    }
    return {name: noised.get(name, value) for name, value in update.items()}


def masked_means(min_cohort: int, shares: NoiseShares | None = None) -> BeginRound:
    """Return the mean of clients' updates, of which the server sees sums alone.

        theta_j <- theta_j + sum_i round(2^24 w_i u_i) / sum_i round(2^24 w_i)

    Where weights are whole numbers, and no entry is cut, no entry is further than 2^-25
    from the exact mean. A cluster of fewer clients keeps its model, and waits.

    Args:
        min_cohort: the fewest clients that a sum may be over.
        shares: the noise that every client adds to its own; None: none does.
    """

    def combined(updates: Sequence[ClientUpdate]) -> Params:
        model, clients = updates[0].update, len(updates)
        sending = {
            update.handle: partial(numbers_of_update, update, clients, shares) for update in updates
        }
        added = secure_sum(sending, count_of_numbers(model), min_cohort)
        return mean_of_numbers(added.values, model, shares)

    def aggregate(models: Models, updates: list[ClientUpdate], _: Streams) -> AggregationResult:
        result = combined_per_cluster(models, updates, combined, min_cohort)
        pairs = enumerate(zip(models, result.clusters, strict=True))
        facts = shares_added((j for j, (old, new) in pairs if new is not old), models, shares)
        return replace(result, events=(*result.events, *facts))

    return partial(AtOnce, aggregate=aggregate)


class ArrivedMeans:
    """Move every model by the mean that remote clients made under masks.

    Every update of a cluster is that mean already. Where none came, all wait.

    Args:
        models: of the clusters.
        streams: unused.
        min_cohort: the fewest clients that a sum may be over.
        shares: the noise that every client added to its own; None: none did.
    """

    def __init__(
        self, models: Models, streams: Streams, *, min_cohort: int, shares: NoiseShares | None
    ) -> None:
        del streams
        self._models, self._min_cohort, self._shares = models, min_cohort, shares
        self._means: dict[int, Params] = {}

    def add(self, update: ClientUpdate) -> None:
        """Take the mean of its cluster."""
        self._means.setdefault(update.cluster, update.update)

    def result(self) -> AggregationResult:
        """Return the models, each moved by its mean."""
        models, means = self._models, self._means
        moved = (add(model, means[j]) if j in means else model for j, model in enumerate(models))
        waited = () if means else (ClusterWaited(0, 0, self._min_cohort),)
        facts = shares_added(means, models, self._shares)
        return AggregationResult(tuple(moved), (*waited, *facts))


def shares_added(
    clusters: Iterable[int], models: Models, shares: NoiseShares | None
) -> tuple[SharesPerturbed, ...]:
    """Return the facts about the noise in the sums of updates of these clusters."""
    if shares is None:
        return ()
    coordinates = count_of_numbers(models[0]) - 1
    terms = shares.bound, shares.effective_multiplier(coordinates), shares.honest, shares.unit
    rounding = shares.rounding(coordinates)
    return tuple(SharesPerturbed("updates", j, *terms, rounding) for j in clusters)


def count_of_numbers(model: Params) -> int:
    """Return how many numbers `numbers_of_update` returns."""
    return 1 + sum(value.numel() for value in trained(model).values())


def mean_of_numbers(
    numbers: Int64[np.ndarray, " numbers"], model: Params, shares: NoiseShares | None = None
) -> Params:
    """Return the weighted mean that a sum of `numbers_of_update` stands for.

    Args:
        numbers: the sum.
        model: of which it is an update.
        shares: the noise that is in it.
    """
    sums = numbers[1:] / STEPS if shares is None else shares.values(numbers[1:])
    moved, rest = dict[str, torch.Tensor](), torch.from_numpy(sums / (numbers[0] / STEPS))
    for name, value in sorted(trained(model).items()):
        moved[name] = rest[: value.numel()].reshape(value.shape).float()
        rest = rest[value.numel() :]
    return {name: moved.get(name, torch.zeros_like(value)) for name, value in model.items()}


def numbers_of_update(
    update: ClientUpdate, clients: int, shares: NoiseShares | None = None
) -> Int64[np.ndarray, " numbers"]:
    """Return what a client sends: its weight, and its weighted update, in steps.

    Args:
        update: what it trained.
        clients: how many are added up.
        shares: the noise that it adds to its own; None: none.

    Raises:
        ModelError: the sum would be of counters, or too large.
    """
    if not all(value.is_floating_point() for value in update.update.values()):
        raise ModelError(
            "Under masks numbers must be added up, found counters (as BatchNorm has), of which the "
            "largest is taken: choose a model without, or privacy.secure_sums = false."
        )
    if update.weight * LARGEST * STEPS * clients >= RING:
        raise ModelError(
            f"Under masks, weights must stay below {RING / (LARGEST * STEPS):.0f} / clients, found "
            f"{update.weight} of {clients} clients: set aggregation.weights = 'equal'."
        )
    ordered = (value for _, value in sorted(trained(update.update).items()))
    flat = torch.cat([value.double().reshape(-1) for value in ordered]).numpy()
    weight = np.rint(np.array([update.weight * STEPS])).astype(np.int64)
    if shares is not None:
        noisy_steps = shares.numbers(flat * update.weight, streams_of(update).draws())
        return np.concatenate([weight, noisy_steps])
    cut = np.clip(flat, -LARGEST, LARGEST) * update.weight
    return np.concatenate([weight, np.rint(cut * STEPS).astype(np.int64)])


@component("aggregation", "mean", default=True)
class Mean(Aggregation):
    """The weighted mean of updates: `ClusterMeans`. Sums of them are all that it needs."""

    sees_updates: ClassVar[bool] = False
    keeps_clusters_apart: ClassVar[bool] = True
    waits: ClassVar[bool] = False

    def begin(self, models: Models, streams: Streams, federation: FederationInfo) -> Aggregator:  # noqa: ARG002 - for others
        """Begin the weighted mean of every cluster."""
        return ClusterMeans(models)
