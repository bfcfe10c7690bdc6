"""What ridge heads tell of who is in them, at the end of a run.

Whoever has a head has its weights, so the attacks are on these. Under noise the success of
the best attacker is computed for every record, and a bound on it from the weights of the
releases alone: that one counts all heads that a client's records were ever in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from numpy import ndarray
from torch import Tensor

from covey.algorithms import ServerState
from covey.build import BuiltRun
from covey.data import Client, Examples
from covey.engine import LocalRecords
from covey.events import HeadPerturbed, ModelAttacked
from covey.heads import (
    FEATURE_STEPS,
    MAX_NORM,
    WEIGHT_STEPS,
    ClusterSums,
    HeadNoise,
    SentHead,
)
from covey.history import History
from covey.membership import (
    MIN_RECORDS,
    WEIGHTS,
    Hiding,
    cross_fitted,
    membership_weights,
)
from covey.params import model_hash
from covey.rng import Streams
from covey.told import of_kinds
from covey.types import Handle, Params

__all__ = ["BOUND", "RATIO", "head_attacks", "weights_scores"]

BOUND = "bound"
"""What no attack at all does better than, by the weight of a client's records."""
RATIO = "likelihood-ratio"
"""The best attack there is on one record of a head under noise."""

MAX_POOL = 6_000
"""Candidates whose weights are solved for at a run's end; an audit takes more."""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """A head, and the clients whose records are in it, each at its weight."""

    index: int
    params: Params
    members: tuple[tuple[Client, int], ...]


def head_attacks(
    run: BuiltRun, final: ServerState, history: History, streams: Streams
) -> Iterator[ModelAttacked]:
    """Yield what is achieved on every ridge head of simulated clients."""
    records, known = run.records, final.kept(ClusterSums)
    if records is None or run.client_backend is not None or not known.gram:
        return
    now = model_hash(final.clusters)
    clients = {client.handle: client for client in run.population.clients}
    for j, params in enumerate(final.clusters):
        inside = tuple(
            (clients[handle], weight)
            for handle, (own, weight) in sorted(known.counted.items())
            if own == j and weight and handle in clients
        )
        if not inside:
            continue
        cluster = _Cluster(j, params, inside)
        yield from _by_weights(run, records, cluster, now, streams.at(j))
        if isinstance(records.noise, HeadNoise):
            yield from _by_ratio(records, records.noise, known, cluster, now)
    yield from _bounds(history, now)


def _by_weights(
    run: BuiltRun, records: LocalRecords, cluster: _Cluster, now: str, streams: Streams
) -> Iterator[ModelAttacked]:
    """Solve for the weights of members and matching non-members together."""
    groups = {client.group for client, _ in cluster.members}
    members = [client for client, _ in cluster.members]
    matching = [
        examples
        for group in sorted(groups, key=str)
        for examples in run.reference.matching(
            group, [each for each in members if each.group == group]
        )
    ]
    inside = [client.train for client in members]
    size = sum(map(len, inside))
    others = sum(map(len, matching))
    if min(size, others) < MIN_RECORDS or size + others > MAX_POOL:
        return
    weight = float(np.mean([w for _, w in cluster.members])) / WEIGHT_STEPS
    pool = [*inside, *matching]
    scores = weights_scores(records, cluster.params, pool, weight)
    rates = cross_fitted(scores[:size], scores[size:], streams.generator())
    yield ModelAttacked(
        cluster.index, WEIGHTS, rates.accuracy, rates.standard_error, now
    )


def weights_scores(
    records: LocalRecords, params: Params, pool: Sequence[Examples], weight: float
) -> Float64[ndarray, " records"]:
    """Return how much each candidate of a pool is in a head, up to one factor.

    weight: of members on average, which is of use where there is noise.
    """
    rows = [records.rows(each) for each in pool]
    theta = SentHead.of(params["head.weight"], params["head.bias"], None).theta
    features = torch.cat([each.features for each in rows]).double() / FEATURE_STEPS
    labels: Tensor = torch.cat([each.labels for each in rows])
    hidden, noise = None, records.noise
    if isinstance(noise, HeadNoise):
        pull = noise.regularisation * MAX_NORM**2
        variance = (noise.clip * noise.multiplier * MAX_NORM) ** 2
        hidden = Hiding(pull, variance, weight)
    return membership_weights(theta.double(), features, labels, hidden).numpy()


def _by_ratio(
    records: LocalRecords,
    noise: HeadNoise,
    known: ClusterSums,
    cluster: _Cluster,
    now: str,
) -> Iterator[ModelAttacked]:
    """Compute the best attacker's success on each record; a client's is its worst."""
    sums, every = known.sums[cluster.index], list[ndarray]()
    for client, weight in cluster.members:
        found = noise.hidden(sums, records.rows(client.train, weight)).successes()
        every.append(found)
        worst = float(found.max(initial=0.5))
        yield ModelAttacked(cluster.index, RATIO, worst, 0.0, now, client.handle)
    together = np.concatenate(every)
    error = float(together.std() / np.sqrt(max(1, len(together))))
    yield ModelAttacked(cluster.index, RATIO, float(together.mean()), error, now)


def _bounds(history: History, now: str) -> Iterator[ModelAttacked]:
    """Bound what all releases together tell of each client's records."""
    releases: dict[Handle, list[HeadPerturbed]] = {}
    for fact in of_kinds(history.told, HeadPerturbed):
        for handle in fact.weights:
            releases.setdefault(handle, []).append(fact)
    for handle, facts in sorted(releases.items()):
        last = facts[-1]
        noise = HeadNoise(
            last.clip, last.noise_multiplier, last.regularisation, last.classes
        )
        weight = max(each.weights[handle] for each in facts)
        bound = noise.success(weight, len(facts))
        yield ModelAttacked(last.cluster, BOUND, bound, 0.0, now, handle)
