"""How the cluster models come to differ in the first place.

With random initial models IFCA often collapses: one model wins every client in the first
round, and no other ever learns. So a run may start from the known groups (an oracle), or
warm: a few shared rounds, then a split of the clients by what they sent. Either way the
clients keep their first cluster for a few rounds before they choose: after one round its
models are still so alike that chance would decide, and the groups would be lost again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from threadpoolctl import threadpool_limits

from covey.aggregation.base import ClientUpdate
from covey.algorithms.algorithm import Opening
from covey.algorithms.clients import Clients
from covey.algorithms.round import Stalled
from covey.algorithms.state import ClientMemory, Cohort, RoundResult, ServerState, initial_state
from covey.base.events import ClientsAssigned, GroupsSought
from covey.base.names import Handle, Params
from covey.base.params import flatten, not_finite
from covey.base.rng import Streams
from covey.data.examples import Client, to_floats

NUM_REFERENCES = 30

SPLIT_STEPS = 25
"""Least local steps of the warm start's split round: enough for the groups to show."""


CLEAR_GAP = 2.0
"""Gap of a split by updates from which on clients send nothing else."""

GAP_PENALTY = {"updates": 0.0, "input statistics": 2.0}
"""Statistics are about the data and have few dimensions, where clouds look like groups."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One way to divide a cohort.

    Attributes:
        labels: cluster index of each client.
        gap: how many standard deviations more of the variance the clusters explain
            than k-means explains in a single Gaussian cloud of the same covariance;
            above about 2 the clients fall into groups, near 0 they do not.
    """

    labels: Int[ndarray, " clients"]
    gap: float


def gap_split(
    points: Float[ndarray, "clients features"], num_clusters: int, generator: np.random.Generator
) -> Split:
    """Split by k-means, and say how far the data are from having no groups.

    gap = (E R_ref - R) / sd(R_ref),  R = sum of squares within clusters / in total

    References:
        After Tibshirani, Walther, Hastie, Estimating the number of clusters in a data
        set via the gap statistic, 2001; here the reference is Gaussian, and relative.
    """
    if not np.isfinite(points).all() or not np.ptp(points, axis=0).any():
        return Split(np.zeros(len(points), dtype=np.int64), 0.0)  # nothing to separate
    # the same cloud, centred and along its principal axes
    left, singular, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    cloud = left * singular
    spread = cloud.std(axis=0)
    # One thread: the order of sums must not depend on the machine.
    with threadpool_limits(1):
        labels, within = _k_means(cloud, num_clusters, generator)
        references = np.array(
            [
                _k_means(generator.normal(0, spread, cloud.shape), num_clusters, generator)[1]
                for _ in range(NUM_REFERENCES)
            ]
        )
    gap = (references.mean() - within) / max(float(references.std()), 1e-12)
    return Split(labels, float(gap))


def update_directions(updates: Sequence[Params]) -> Float[ndarray, "clients features"]:
    """Return the directions of the updates, relative to their mean, as rows.

    v_i = (u_i - mean u) / |u_i - mean u|

    What all clients have in common would hide what sets them apart. Rows are in a basis
    of the space that the updates span: only their inner products matter.
    """
    rows = torch.stack([flatten(update) for update in updates]).double()
    rows -= rows.mean(dim=0)
    rows /= rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    if not rows.isfinite().all():  # a client's training diverged
        return np.full((len(rows), 1), np.nan)
    values, vectors = np.linalg.eigh((rows @ rows.T).numpy())
    is_large = values > 1e-9 * values.max()
    return vectors[:, is_large] * np.sqrt(values[is_large])


def _k_means(
    points: Float[ndarray, "n features"], k: int, generator: np.random.Generator
) -> tuple[Int[ndarray, " n"], float]:
    """Return the labels, and the share of the variance that is left within clusters."""
    from sklearn.cluster import KMeans

    seed = int(generator.integers(2**31))
    fitted = KMeans(k, n_init=10, random_state=seed)  # pyright: ignore[reportArgumentType]
    labels = fitted.fit_predict(points)
    total = ((points - points.mean(axis=0)) ** 2).sum()
    return labels.astype(np.int64), (fitted.inertia_ or 0.0) / max(float(total), 1e-300)


def opening_round(
    opening: Opening, state: ServerState, clients: Clients, streams: Streams
) -> RoundResult | None:
    """Play an ordinary round in which clients do not choose; None: they choose by now.

    Shared rounds and the split round go through the same aggregation as any other, with
    their participants in the ledger.
    """
    t = state.round_index
    if opening.how == "groups" and t < opening.kept_rounds:
        known = {client.handle: client.group or 0 for client in clients.cohort}
        return clients.train_and_aggregate(state, ClientsAssigned(known, "groups"), streams)
    if opening.how != "warm":
        return None
    if state.assignment:
        is_opening = t < opening.shared_rounds + opening.kept_rounds
        return _kept_round(state, clients, streams) if is_opening else None
    if t < opening.shared_rounds or len(clients) <= len(state.clusters):
        return _shared_round(state, clients, streams)
    return _split_round(state, clients, streams)


def _shared_round(
    state: ServerState,
    clients: Clients,
    streams: Streams,
    updates: Sequence[ClientUpdate] | None = None,
) -> RoundResult:
    """Train one model together; every cluster gets it."""
    everybody = clients.all_in_one("shared")
    stalled = state.get_state(Stalled).clusters
    alone = replace(initial_state(state.clusters[:1]), round_index=state.round_index).with_state(
        Stalled(clusters=stalled & {0}), state.get_state(ClientMemory)
    )
    played = clients.train_and_aggregate(alone, everybody, streams, updates)
    models = len(state.clusters)
    now_stalled = played.state.get_state(Stalled).clusters
    after = state.with_state(
        Stalled(clusters=frozenset(range(models if now_stalled else 0))),
        played.state.get_state(ClientMemory),
    )
    return played._replace(state=after.with_models(played.state.clusters * models))


def _split_round(state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
    """Train the shared model, split the cohort by what came back, and merge per part."""
    shared = {client.handle: 0 for client in clients.cohort}
    updates = tuple(clients.train(state.clusters, shared, streams, state, SPLIT_STEPS))
    cohort = _members_in(clients.cohort, {update.handle for update in updates})
    trained = clients.among(cohort)
    # Updates that are not finite show no group, and would be one: the round refuses them.
    valid = tuple(update for update in updates if not not_finite(update.update))
    able = _members_in(cohort, {update.handle for update in valid})
    if len(able) <= len(state.clusters):
        return _shared_round(state, trained, streams, updates)
    candidates = _candidates(able, valid, len(state.clusters), streams)
    best = max(candidates, key=lambda name: candidates[name].gap - GAP_PENALTY[name])
    split = {client.handle: 0 for client in cohort} | {
        client.handle: int(j) for client, j in zip(able, candidates[best].labels, strict=True)
    }
    parts = ClientsAssigned(split, "split")
    moved = trained.train_and_aggregate(state, parts, streams, updates)
    described = "input statistics" in candidates
    sought = GroupsSought(
        gaps={name: split.gap for name, split in candidates.items()},
        chosen=best,
        sent="mean and deviation of its inputs per channel" if described else "nothing",
    )
    return moved.preceded_by((sought,))


def _members_in(cohort: Cohort, handles: Collection[Handle]) -> Cohort:
    return tuple(client for client in cohort if client.handle in handles)


def _kept_round(state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
    """Keep the split; who was not there when it was made takes the lowest loss."""
    clusters = {c.handle: state.assignment.get(c.handle) for c in clients.cohort}
    newcomers = tuple(c for c in clients.cohort if clusters[c.handle] is None)
    clusters |= clients.among(newcomers).nearest(state, streams)
    placed = {handle: j for handle, j in clusters.items() if j is not None}
    return clients.train_and_aggregate(state, ClientsAssigned(placed, "split"), streams)


def _candidates(
    cohort: Cohort, updates: Sequence[ClientUpdate], num_clusters: int, streams: Streams
) -> dict[str, Split]:
    """Return a split by the updates and, if it is not clear, one by input statistics.

    Rotations show in what a model learns and hardly in the statistics of the pixels;
    brightness is the other way round.
    """

    def split(name: str, points: Float[ndarray, "clients features"]) -> Split:
        return gap_split(points, num_clusters, streams.at("split", name).generator())

    by_updates = split("updates", update_directions([update.update for update in updates]))
    seen = all(len(client.train) for client in cohort)  # not where they are apart
    if by_updates.gap >= CLEAR_GAP or not seen:
        return {"updates": by_updates}
    statistics = np.stack([_statistics(client) for client in cohort])
    return {"updates": by_updates, "input statistics": split("input statistics", statistics)}


def _statistics(client: Client) -> Float[ndarray, " twice_channels"]:
    """Return mean and deviation of the client's inputs per channel."""
    inputs = to_floats(client.train.inputs).double()
    channels = inputs.flatten(2).transpose(0, 1).flatten(1) if inputs.dim() > 2 else inputs.T
    return np.concatenate([channels.mean(dim=1), channels.std(dim=1)])
