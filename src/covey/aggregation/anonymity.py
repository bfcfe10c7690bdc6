"""Perturbed k-anonymous integrally private federated averaging: updates hidden in sets.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Algorithm 1 and Eq. 10-12.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

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
from covey.events import (
    AnonymitySetsFormed,
    ClusterWaited,
    Event,
    OrganisationsAttested,
    RepresentativesPerturbed,
)
from covey.params import add, flatten, trained
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
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
    """

    min_anonymity: int
    partition: Literal["mdav", "kmeans", "public-random"]
    distance: Literal["l2", "cosine"]
    max_distance: float
    noise: NoiseScale
    bound: L2Bound | None = None
    min_organisations: int = 1
    organisations: Mapping[Handle, str] = field(default_factory=dict[Handle, str])


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

    References:
        Algorithm 1; Eq. 11 and 12.
    """

    def aggregate(
        clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
    ) -> AggregationResult:
        members: dict[int, list[ClientUpdate]] = {}
        for each in updates:
            members.setdefault(each.cluster, []).append(_bounded(config, each))
        representatives: list[ClientUpdate] = []
        facts: list[Event] = []
        for j, of_cluster in sorted(members.items()):
            if _waits(config, of_cluster):
                facts.append(ClusterWaited(j, len(of_cluster), config.min_anonymity))
                continue
            locals_ = [add(clusters[j], each.update) for each in of_cluster]
            sets = _partition(config, locals_, streams.at("partition", j))
            if config.min_organisations > 1:
                owners = [config.organisations.get(each.handle) for each in of_cluster]
                sets = joined_sets(sets, owners, config.min_organisations)
            formed = _sets_event(config, of_cluster, sets)
            facts += (
                formed,
                *_organisation_events(config, formed),
                *_noise_events(config, formed),
            )
            for c, each in enumerate(sets):
                hidden = streams.hidden().at("anonymity set", j, c)
                std = config.noise(locals_, each)
                representatives.append(_representative(of_cluster, each, std, hidden))
        return AggregationResult(
            mean_per_cluster(clusters, representatives, streams).clusters, tuple(facts)
        )

    return aggregate


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


def _waits(config: AnonymityConfig, updates: Sequence[ClientUpdate]) -> bool:
    if len(updates) < config.min_anonymity:
        return True
    attested = (config.organisations.get(each.handle) for each in updates)
    return 1 < config.min_organisations > len({*attested} - {None})


def _partition(
    config: AnonymityConfig, models: Sequence[Params], streams: Streams
) -> Sets:
    k = config.min_anonymity
    if config.partition == "public-random":
        return public_random(len(models), k, streams.generator())
    points = _points(models)
    if config.distance == "cosine":
        points = unit_rows(points)
    if config.partition == "kmeans":
        return balanced_kmeans(points, k, streams.generator())
    return mdav(points, k)


def _points(models: Sequence[Params]) -> Points:
    return torch.stack([flatten(trained(model)) for model in models])


def _sets_event(
    config: AnonymityConfig, updates: Sequence[ClientUpdate], sets: Sets
) -> AnonymitySetsFormed:
    """Return what the ledger remembers of the sets, each in the order of its handles."""
    points = _points([each.update for each in updates])
    handles = [each.handle for each in updates]
    widths = _reported_diameters(config, points, sets)
    close = neighbours(points, sets, config.max_distance) if config.max_distance else ()
    rows: list[
        tuple[tuple[Handle, ...], float | None, tuple[tuple[Handle, ...], ...]]
    ] = []
    for c, members in enumerate(sets):
        order = sorted(range(len(members)), key=lambda i: handles[members[i]])
        near = [sorted(handles[n] for n in close[c][i]) for i in order] if close else []
        rows.append(
            (
                tuple(handles[members[i]] for i in order),
                widths[c],
                tuple(tuple(each) for each in near),
            )
        )
    rows.sort()
    return AnonymitySetsFormed(
        cluster=updates[0].cluster,
        sets=tuple(each[0] for each in rows),
        diameters=tuple(each[1] for each in rows),
        near=tuple(each[2] for each in rows) if close else (),
    )


def _reported_diameters(
    config: AnonymityConfig, points: Points, sets: Sets
) -> list[float | None]:
    """Return the sets' diameters, where they are finite and may be told."""
    if config.bound is not None:
        return [None] * len(sets)
    return [d if math.isfinite(d) else None for d in diameters(points, sets)]


def _organisation_events(
    config: AnonymityConfig, formed: AnonymitySetsFormed
) -> tuple[OrganisationsAttested, ...]:
    """Return who shares an organisation in each set, but not which one it is."""
    if not config.organisations:
        return ()

    def numbered(members: Sequence[Handle]) -> tuple[int | None, ...]:
        numbers: dict[str, int] = {}
        found = map(config.organisations.get, members)
        return tuple(
            None if each is None else numbers.setdefault(each, len(numbers))
            for each in found
        )

    return (OrganisationsAttested(formed.cluster, tuple(map(numbered, formed.sets))),)


def _noise_events(
    config: AnonymityConfig, formed: AnonymitySetsFormed
) -> tuple[RepresentativesPerturbed, ...]:
    if config.bound is None:
        return ()
    sizes = tuple(len(members) for members in formed.sets)
    bound = config.bound
    return (
        RepresentativesPerturbed(
            formed.cluster, sizes, bound.radius, bound.noise_multiplier
        ),
    )


def _representative(
    updates: Sequence[ClientUpdate], members: Sequence[int], std: float, hidden: Streams
) -> ClientUpdate:
    """Return one member's perturbed update, with the weight of the whole set."""
    chosen = members[
        int(hidden.at("representative").generator().integers(len(members)))
    ]
    noise = hidden.at("noise").generator()
    update = (
        updates[chosen].update
        if std == 0
        else noisy(updates[chosen].update, std, noise)
    )
    return replace(
        updates[chosen], update=update, weight=sum(updates[i].weight for i in members)
    )


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
