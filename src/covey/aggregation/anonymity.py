"""Perturbed k-anonymous integrally private federated averaging: updates hidden in sets.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Algorithm 1 and Eq. 10-12.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation.anonymity_events import (
    organisation_events,
    sets_event,
    sketched_events,
)
from covey.aggregation.merging import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    mean_per_cluster,
)
from covey.aggregation.microaggregation import (
    Sets,
    balanced_kmeans,
    diameters,
    joined_sets,
    mdav,
    neighbours,
    public_random,
    unit_rows,
)
from covey.aggregation.private import noisy, projected
from covey.aggregation.recall import RecallableUpdates
from covey.aggregation.sketched_sets import sketched_clusters, update_bytes
from covey.events import (
    AnonymitySetsFormed,
    ClusterWaited,
    Event,
    RepresentativesPerturbed,
)
from covey.params import add, flatten, trained
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "WINDOW",
    "AnonymityConfig",
    "L2Bound",
    "NoiseScale",
    "anonymity_aggregator",
    "dp_anonymity",
    "noise_scale",
]

Points = Float[Tensor, "clients coordinates"]
NoiseScale = Callable[[Sequence[Params], Sequence[int]], float]
"""The standard deviation, per coordinate, of what hides one set's representative; from all
clients' models, and which of them are in the set."""
Near = tuple[Sets, ...]

WINDOW = 2.0**30
"""Bytes of a round's updates that are held; beyond, they pass by, and sketches are left."""


@dataclass(frozen=True, slots=True)
class L2Bound:
    """What bounds an update, and how much noise hides it.

    Attributes:
        radius: Delta, the largest L2 norm of an update; two are at most 2 Delta apart.
        noise_multiplier: z; the noise has standard deviation 2 z Delta per coordinate.
    """

    radius: float
    noise_multiplier: float


@dataclass(frozen=True, slots=True)
class AnonymityConfig:
    """How a cluster's updates are hidden.

    Attributes:
        min_anonymity: the paper's k: sets have k to 2k - 1 members, more where two were
            joined for the sake of `min_organisations`.
        partition: by MDAV or balanced k-means on the clients' models, or blindly.
        distance: what these two compare: the models' L2 distance, or the angle.
        max_distance: the paper's Delta: L2 distance from a member beyond which another
            one does not speak for it; 0: none is too far.
        noise: the standard deviation of what is added to a representative.
        bound: where representatives are differentially private (`dp_anonymity`).
        min_organisations: different organisations of each set's members.
        organisations: of clients, as far as they are attested.
        window: bytes of a round's updates. Where they take more, and can be had once more,
            sets are made over sketches, and representatives are had again.
    """

    min_anonymity: int
    partition: Literal["mdav", "kmeans", "public-random"]
    distance: Literal["l2", "cosine"]
    max_distance: float
    noise: NoiseScale
    bound: L2Bound | None = None
    min_organisations: int = 1
    organisations: Mapping[Handle, str] = field(default_factory=dict[Handle, str])
    window: float = WINDOW


def dp_anonymity(min_anonymity: int, bound: L2Bound) -> AnonymityConfig:
    """Return the way of hiding that is differentially private for each client.

    u_i <- min(1, Delta / |u_i|) u_i;  s_c = 2 z Delta

    Sets look at no data, so that replacing a client replaces one update of one set: it
    moves its representative by at most 2 Delta, if it is drawn at all. Nothing else that
    depends on the updates is told, diameters neither.
    """
    std = 2 * bound.noise_multiplier * bound.radius
    return AnonymityConfig(
        min_anonymity, "public-random", "l2", 0.0, lambda _, __: std, bound
    )


def anonymity_aggregator(config: AnonymityConfig) -> Aggregator:
    """Return the aggregation that shows the server one perturbed update per anonymity set.

    theta_j <- theta_j + sum_c p_c (u_{r_c} + N(0, s_c^2 I)) / sum_c p_c

    The sets C_c partition the clients of cluster j, p_c is the sum of its members'
    weights and r_c one of its members, drawn from a hidden stream. A cluster with fewer
    than k clients waits, and so does one whose clients are of too few organisations.

    `RecallableUpdates` that take more than `config.window` bytes are not held: the sets
    compare their sketches, and the update of each r_c is had again. The same sets then
    give the same models, to the bit.

    References:
        Algorithm 1; Eq. 11 and 12.
    """

    def aggregate(
        clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
    ) -> AggregationResult:
        arriving = (_bounded(config, each) for each in updates)
        if not isinstance(updates, RecallableUpdates):
            return _hidden(config, clusters, arriving, streams)
        held, passing = _window(arriving, config.window)
        if passing is None:
            return _hidden(config, clusters, held, streams)

        def again(handles: Sequence[Handle]) -> Iterator[ClientUpdate]:
            return (_bounded(config, each) for each in updates.again(handles))

        passing = RecallableUpdates(passing, again)
        return _hidden_by_sketches(config, clusters, passing, streams)

    return aggregate


def _window(
    arriving: Iterator[ClientUpdate], most: float
) -> tuple[Sequence[ClientUpdate], Iterator[ClientUpdate] | None]:
    """Hold all updates, where they take so many bytes at most; else they pass by.

    Returns:
        All of them and None, or nothing and an iterator over all of them, which lets go of
        each as it yields it.
    """
    held, taken = deque[ClientUpdate](), 0
    for each in arriving:
        held.append(each)
        taken += update_bytes(each.update)
        if taken > most:
            return (), chain(_released(held), arriving)
    return held, None


def _released(held: deque[ClientUpdate]) -> Iterator[ClientUpdate]:
    while held:
        yield held.popleft()


def _hidden(
    config: AnonymityConfig,
    clusters: tuple[Params, ...],
    updates: Iterable[ClientUpdate],
    streams: Streams,
) -> AggregationResult:
    """Hide updates that are all here."""
    members: dict[int, list[ClientUpdate]] = {}
    for each in updates:
        members.setdefault(each.cluster, []).append(each)
    representatives: list[ClientUpdate] = []
    facts: list[Event] = []
    for j, of_cluster in sorted(members.items()):
        handles = [each.handle for each in of_cluster]
        if _waits(config, handles):
            facts.append(ClusterWaited(j, len(of_cluster), config.min_anonymity))
            continue
        locals_ = [add(clusters[j], each.update) for each in of_cluster]
        models = _points(locals_) if config.partition != "public-random" else None
        sets = _partition(config, models, handles, streams.at("partition", j))
        points = _points([each.update for each in of_cluster])
        near = _near(config, points, sets, config.max_distance)
        formed = sets_event(j, handles, sets, _told(config, points, sets), near)
        facts += (formed, *_events_beside(config, formed))
        for c, each in enumerate(sets):
            at = streams.at("anonymity set", j, c)
            std = config.noise(locals_, each)
            weight = sum(of_cluster[i].weight for i in each)
            speaker = of_cluster[_speaker(each, at)]
            representatives.append(_perturbed(speaker, weight, std, at))
    merged = mean_per_cluster(clusters, representatives, streams)
    return AggregationResult(merged.clusters, tuple(facts))


def _hidden_by_sketches(
    config: AnonymityConfig,
    clusters: tuple[Params, ...],
    updates: RecallableUpdates,
    streams: Streams,
) -> AggregationResult:
    """Hide updates that pass by one by one: who speaks for a set is asked again."""
    speakers: list[Handle] = []
    how: list[tuple[float, float, Streams]] = []
    facts: list[Event] = []
    for j, own in sorted(sketched_clusters(clusters, updates, streams).items()):
        if _waits(config, own.handles):
            facts.append(ClusterWaited(j, len(own.handles), config.min_anonymity))
            continue
        points = own.points()
        models = points + own.model if config.distance == "cosine" else points
        partition = streams.at("partition", j)
        sets = _partition(config, models, own.handles, partition)
        most = own.sketch.surely_within(config.max_distance)
        near = _near(config, points, sets, most)
        formed = sets_event(j, own.handles, sets, _told(config, points, sets), near)
        facts += (
            *sketched_events(own.sketch.numbers, formed),
            *_events_beside(config, formed),
        )
        for c, each in enumerate(sets):
            at = streams.at("anonymity set", j, c)
            weight = sum(own.weights[i] for i in each)
            speakers.append(own.handles[_speaker(each, at)])
            how.append((weight, config.noise((), each), at))
    recalled = zip(updates.again(speakers), how, strict=True)
    representatives = (_perturbed(update, *each) for update, each in recalled)
    merged = mean_per_cluster(clusters, representatives, streams)
    return AggregationResult(merged.clusters, tuple(facts))


def noise_scale(
    noise: Literal["none", "released", "paper"],
    distance: Literal["l2", "cosine"],
    std: float,
) -> NoiseScale:
    """Return the noise of this name.

    none: no noise. released: what the paper's published code adds, the largest distance
    between two members of the set. paper: sigma * Delta, as printed, given as `std`.
    None of them by itself makes a model differentially private.
    """
    if noise == "none":
        return lambda _, __: 0.0
    if noise == "paper":
        return lambda _, __: std
    apart = _angle if distance == "cosine" else _mean_row_distance
    return lambda models, members: max(
        (apart(models[a], models[b]) for a, b in combinations(members, 2)),
        default=0.0,
    )


def _bounded(config: AnonymityConfig, each: ClientUpdate) -> ClientUpdate:
    """Return what a client shows of its update; in a ball, all count the same."""
    if config.bound is None:
        return each
    bounded = projected(each.update, config.bound.radius)
    return replace(each, update=bounded, weight=1.0)


def _waits(config: AnonymityConfig, handles: Sequence[Handle]) -> bool:
    if len(handles) < config.min_anonymity:
        return True
    attested = map(config.organisations.get, handles)
    return 1 < config.min_organisations > len({*attested} - {None})


def _partition(
    config: AnonymityConfig,
    points: Points | None,
    handles: Sequence[Handle],
    streams: Streams,
) -> Sets:
    sets = _divided(config, points, len(handles), streams)
    if config.min_organisations == 1:
        return sets
    owners = [config.organisations.get(each) for each in handles]
    return joined_sets(sets, owners, config.min_organisations)


def _divided(
    config: AnonymityConfig, points: Points | None, n: int, streams: Streams
) -> Sets:
    k = config.min_anonymity
    if points is None or config.partition == "public-random":
        return public_random(n, k, streams.generator())
    if config.distance == "cosine":
        points = unit_rows(points)
    if config.partition == "kmeans":
        return balanced_kmeans(points, k, streams.generator())
    return mdav(points, k)


def _points(models: Sequence[Params]) -> Points:
    return torch.stack([flatten(trained(model)) for model in models])


def _near(config: AnonymityConfig, points: Points, sets: Sets, most: float) -> Near:
    """Return who is near whom in each set, where that is asked."""
    return neighbours(points, sets, most) if config.max_distance else ()


def _told(
    config: AnonymityConfig, points: Points, sets: Sets
) -> Sequence[float | None]:
    """Return the sets' diameters, where they are finite and may be told."""
    if config.bound is not None:
        return [None] * len(sets)
    return [d if math.isfinite(d) else None for d in diameters(points, sets)]


def _events_beside(
    config: AnonymityConfig, formed: AnonymitySetsFormed
) -> tuple[Event, ...]:
    """Return who shares an organisation, and what noise representatives have."""
    attested = organisation_events(config.organisations, formed)
    if config.bound is None:
        return attested
    sizes = tuple(len(members) for members in formed.sets)
    radius, multiplier = config.bound.radius, config.bound.noise_multiplier
    perturbed = RepresentativesPerturbed(formed.cluster, sizes, radius, multiplier)
    return (*attested, perturbed)


def _speaker(members: Sequence[int], streams: Streams) -> int:
    """Draw who speaks for a set."""
    draws = streams.at("representative").draws()
    return members[int(draws.integers(len(members)))]


def _perturbed(
    speaker: ClientUpdate, weight: float, std: float, streams: Streams
) -> ClientUpdate:
    """Return one member's perturbed update, with the weight of the whole set."""
    if std == 0:
        return replace(speaker, weight=weight)
    noise = streams.at("noise").draws()
    return replace(speaker, update=noisy(speaker.update, std, noise), weight=weight)


def _mean_row_distance(left: Params, right: Params) -> float:
    """Return the mean over all rows of all layers of the rows' L2 distance."""
    gaps = [
        (value - right[name]).reshape(len(value), -1).norm(dim=1)
        for name, value in trained(left).items()
        if value.dim() > 0
    ]
    return float(torch.cat(gaps).mean())


def _angle(left: Params, right: Params) -> float:
    one, other = flatten(trained(left)), flatten(trained(right))
    return float(1 - torch.nn.functional.cosine_similarity(one, other, dim=0))
