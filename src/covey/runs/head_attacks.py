"""What linear layers reveal of who is in them, at the end of a run and in an audit.

A holder of a head has its weights, so the attacks are on these.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float64
from numpy import ndarray
from torch import Tensor

from covey.algorithms.state import ServerState
from covey.base.built_ins import BOUND
from covey.base.events import ModelAttacked
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Params
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.data.examples import Client, Examples
from covey.membership.attacks import cross_fitted
from covey.membership.audit import WEIGHTS
from covey.membership.intervals import MIN_RECORDS, with_extremes
from covey.membership.weights_attack import (
    LAST_LAYER_PRIOR,
    PRIOR,
    Equations,
    last_layer_of,
    membership_weights,
    population_scores,
)
from covey.ridge.head import ClusterSums, SentHead
from covey.ridge.sums import FEATURE_STEPS
from covey.settings.run import BuiltRun

POPULATION = "population"
"""The attack on weights by an attacker with no member but the one in question."""

MAX_POOL = 6_000
"""Candidates whose weights are solved for at a run's end; an audit takes more."""

MAX_JUDGED = 2_000
"""Of non-members so many are judged; of members where these are too many for a pool."""


def head_attacks(run: BuiltRun, final: ServerState, streams: Streams) -> Iterator[ModelAttacked]:
    """Yield what is achieved on every ridge head of simulated clients."""
    known = final.get_state(ClusterSums)
    if run.records is None or run.client_backend is not None or not known.sums:
        return
    now = model_hash(final.clusters)
    clients = {client.handle: client for client in run.population.clients}
    for j, params in enumerate(final.clusters):
        inside = [
            clients[handle]
            for handle, own in sorted(known.counted.items())
            if own == j and handle in clients
        ]
        if inside:
            yield from _by_weights(run, j, params, inside, now, streams.at(j))


def _by_weights(
    run: BuiltRun, j: int, params: Params, members: Sequence[Client], now: str, streams: Streams
) -> Iterator[ModelAttacked]:
    """Ask the weights about members and matching non-members.

    All of them together, or where these are too many, some of them one by one.
    """
    groups = sorted({client.group for client in members}, key=str)
    matching = [
        examples
        for group in groups
        for examples in run.reference.matching(
            group, [member for member in members if member.group == group]
        )
    ]
    inside, matching = ([client.train for client in members], _evenly(matching, MAX_JUDGED))
    name, size = WEIGHTS, sum(map(len, inside))
    others = sum(map(len, matching))
    if min(size, others) < MIN_RECORDS:
        return
    if size + others > MAX_POOL:
        inside = _evenly(inside, MAX_JUDGED)
        name, size = POPULATION, sum(map(len, inside))
        # The attack that finds everybody is not run, so no one is protected.
        no_attack = RiskEstimate(Figure(1.0, 0.0), source=BOUND)
        for client in members:
            yield ModelAttacked(j, no_attack, now, client.handle)
    attack = weights_attacks(run, params)[name]
    success = attack([*inside, *matching])
    if success is None:
        return
    estimate = cross_fitted(success[:size], success[size:], streams.generator())
    ends = np.cumsum([len(examples) for examples in inside])[:-1]
    estimate = with_extremes(estimate, np.split(success[:size], ends), success[size:])
    yield ModelAttacked(j, replace(estimate, source=name), now)


def _evenly(sets: Sequence[Examples], most: int) -> list[Examples]:
    step = max(1, -(-sum(map(len, sets)) // most))
    return [examples.take(torch.arange(0, len(examples), step)) for examples in sets]


Scores = Float64[ndarray, " records"] | None


def weights_attacks(
    run: BuiltRun, params: Params
) -> Mapping[str, Callable[[Sequence[Examples]], Scores]]:
    """Return attacks by name: how much each candidate is in a linear layer.

    Of a ridge head, or of the last layer of a network; None where there is none.

    Args:
        run: whose models these are.
        params: a model's.
    """

    def by_pool(pool: Sequence[Examples]) -> Scores:
        """Solve for all candidates together."""
        candidates = _equations(run, params, pool)
        if candidates is None:
            return None
        is_ridge = run.records is not None and run.config.method.traits.subtracts
        prior = PRIOR if is_ridge else LAST_LAYER_PRIOR
        return membership_weights(candidates, prior).numpy()

    def one_by_one(judged: Sequence[Examples]) -> Scores:
        """Judge each by itself, beside test examples that are drawn alike."""
        alike = _evenly(run.population.test, MAX_JUDGED)
        if sum(map(len, alike)) < MIN_RECORDS:
            return None
        candidates = _equations(run, params, judged)
        others = _equations(run, params, alike)
        if candidates is None or others is None:
            return None
        return population_scores(candidates, others).numpy()

    return {WEIGHTS: by_pool, POPULATION: one_by_one}


def _equations(run: BuiltRun, params: Params, pool: Sequence[Examples]) -> Equations | None:
    records = run.records
    if records is None or not run.config.method.traits.subtracts:
        assert run.module is not None  # every built run has one  # noqa: S101
        return last_layer_of(run.module, params, Examples.joined(pool))
    rows = [records.rows(examples) for examples in pool]
    theta = SentHead.of(params).theta
    features = torch.cat([row.features for row in rows]).double() / FEATURE_STEPS
    labels: Tensor = torch.cat([row.labels for row in rows])
    return Equations.of_ridge(theta.double(), features, labels)
