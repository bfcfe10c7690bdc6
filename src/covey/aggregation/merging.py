"""How clients' updates become the next cluster models.

Every aggregation is a function `(cluster models, updates, streams) -> AggregationResult`;
what it draws, it draws from `streams`. A user's own is one too: `package.module:function`.
Updates arrive one by one, in client-name order, so that a mean never holds more than one
of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from covey.events import ClusterWaited, Event
from covey.params import add, scale
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "AggregationResult",
    "Aggregator",
    "ClientUpdate",
    "combined_per_cluster",
    "mean_per_cluster",
    "sum_per_cluster",
    "with_stored_updates",
]


@dataclass(frozen=True, slots=True, eq=False)
class ClientUpdate:
    """One client's contribution to one cluster: `update = local - start`.

    Attributes:
        weight: share in a weighted mean, any positive unit.
        kept: what the client keeps for its next round, by name; None: nothing. It stays on
            the client's side, and is empty here where that is elsewhere; a simulation plays
            both.
        loss: of its training, in nats; None: not known here.
    """

    handle: Handle
    cluster: int
    update: Params
    weight: float
    kept: Mapping[str, Params] | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AggregationResult:
    """The next cluster models, and what a ledger should remember of the merge.

    Attributes:
        stored: the raw updates, where they are to be kept.
    """

    clusters: tuple[Params, ...]
    events: tuple[Event, ...] = ()
    stored: tuple[ClientUpdate, ...] = ()


Aggregator = Callable[
    [tuple[Params, ...], Iterable[ClientUpdate], Streams], AggregationResult
]


def mean_per_cluster(
    clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], _: Streams
) -> AggregationResult:
    """Move every cluster model by the weighted mean of its clients' updates.

    theta_j <- theta_j + sum_{i in S_j} w_i (theta_i - theta_j) / sum_{i in S_j} w_i

    With equal weights this is the mean of the clients' models. An empty cluster does not
    move. Counters take their maximum instead.

    References:
        Jung, Biswas, Palamidessi, IFCA-MIR, 2025, Algorithm 1 line 17.
    """
    sums, weights = sum_per_cluster(updates)
    return AggregationResult(
        tuple(
            add(model, scale(sums[j], 1 / weights[j])) if j in sums else model
            for j, model in enumerate(clusters)
        )
    )


def combined_per_cluster(
    clusters: tuple[Params, ...],
    updates: Iterable[ClientUpdate],
    combined: Callable[[list[ClientUpdate]], Params],
    fewest: int,
) -> AggregationResult:
    """Move every cluster model by what all of its clients' updates combine to.

    A cluster with fewer clients than `fewest` keeps its model, and waits.
    """
    members: dict[int, list[ClientUpdate]] = {}
    for each in updates:
        members.setdefault(each.cluster, []).append(each)
    moved, facts = list(clusters), list[Event]()
    for j, own in sorted(members.items()):
        if len(own) < fewest:
            facts.append(ClusterWaited(j, len(own), fewest))
        else:
            moved[j] = add(clusters[j], combined(own))
    return AggregationResult(tuple(moved), tuple(facts))


def sum_per_cluster(
    updates: Iterable[ClientUpdate],
) -> tuple[Mapping[int, Params], Mapping[int, float]]:
    """Return sum_{i in S_j} w_i u_i and sum_{i in S_j} w_i of each cluster j with clients.

    Counters are not added: their maximum is taken.
    """
    sums: dict[int, dict[str, torch.Tensor]] = {}
    weights: dict[int, float] = {}
    for each in updates:
        _accumulate(sums.setdefault(each.cluster, {}), each)
        weights[each.cluster] = weights.get(each.cluster, 0.0) + each.weight
        del each  # before the next one comes
    return sums, weights


def with_stored_updates(aggregate: Aggregator) -> Aggregator:
    """Return the same aggregation, which also hands the raw updates on."""

    def aggregate_and_store(
        clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
    ) -> AggregationResult:
        stored = tuple(updates)
        return replace(aggregate(clusters, stored, streams), stored=stored)

    return aggregate_and_store


def _accumulate(total: dict[str, torch.Tensor], each: ClientUpdate) -> None:
    for name, value in each.update.items():
        if name not in total:
            total[name] = value * each.weight if value.is_floating_point() else value
        elif value.is_floating_point():
            total[name].add_(value, alpha=each.weight)
        else:
            total[name] = torch.maximum(total[name], value)
