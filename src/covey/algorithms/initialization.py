"""How the cluster models come to differ in the first place.

With random initial models IFCA often collapses: one model wins every client in the first
round, and no other ever learns. So a run may start from the known groups (an oracle), or
warm: a few shared rounds, then a split of the clients by what they sent. Either way the
clients keep their first cluster for a few rounds before they choose: after one round its
models are still so alike that chance would decide, and the groups would be lost again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey.aggregation import ClientUpdate, finite_updates
from covey.algorithms.algorithm import Strategy
from covey.algorithms.base import Cohort, RoundResult, ServerState, initial_state
from covey.algorithms.client_memory import ClientMemory
from covey.algorithms.clients import Clients
from covey.algorithms.local_training import no_noise_events
from covey.algorithms.round_steps import Stalled
from covey.clustering import Split, gap_split, update_directions
from covey.data.examples import Client, to_floats
from covey.events import ClientsAssigned, GroupsSought
from covey.rng import Streams
from covey.types import Handle

__all__ = ["WarmStart", "group_initialized", "warm_started"]


def group_initialized(strategy: Strategy, kept_rounds: int) -> Strategy:
    """Assign every client to its true group at first: an oracle, for simulations."""

    def play_round(
        state: ServerState, clients: Clients, streams: Streams
    ) -> RoundResult:
        if state.round_index >= kept_rounds:
            return strategy.play_round(state, clients, streams)
        known = {client.handle: client.group or 0 for client in clients.cohort}
        groups = ClientsAssigned(known, "groups")
        return clients.train_and_aggregate(state, groups, streams)

    return strategy._replace(play_round=play_round)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A few shared rounds, then one round after which the server splits the cohort.

    Attributes:
        shared_rounds: rounds of FedAvg before the split.
        kept_rounds: rounds from the split on in which clients keep their part.
    """

    shared_rounds: int
    kept_rounds: int


def warm_started(strategy: Strategy, warm: WarmStart) -> Strategy:
    """Find the groups from what clients send, then play on with the strategy.

    Shared rounds and the split round are ordinary rounds: through the same aggregation,
    with their participants in the ledger.
    """

    def play_round(
        state: ServerState, clients: Clients, streams: Streams
    ) -> RoundResult:
        if state.assignment:
            if state.round_index < warm.shared_rounds + warm.kept_rounds:
                return _kept_round(state, clients, streams)
            return strategy.play_round(state, clients, streams)
        if state.round_index < warm.shared_rounds or len(clients) <= len(
            state.clusters
        ):
            return _shared_round(state, clients, streams)
        return _split_round(state, clients, streams)

    return strategy._replace(play_round=play_round)


def _shared_round(
    state: ServerState,
    clients: Clients,
    streams: Streams,
    updates: Sequence[ClientUpdate] | None = None,
) -> RoundResult:
    """Train one model together; every cluster gets it."""
    everybody = clients.all_in(0, "shared")
    stalled = state.kept(Stalled).clusters
    alone = replace(
        initial_state(state.clusters[:1]), round_index=state.round_index
    ).keeping(
        Stalled(clusters=stalled & {0}),
        state.kept(ClientMemory),
    )
    played = clients.train_and_aggregate(alone, everybody, streams, updates)
    models = len(state.clusters)
    nothing_came = played.state.kept(Stalled).clusters
    after = state.keeping(
        Stalled(clusters=frozenset(range(models if nothing_came else 0))),
        played.state.kept(ClientMemory),
    )
    return RoundResult(after.with_models(played.state.clusters * models), played.events)


def _split_round(state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
    """Train the shared model, split the cohort by what came back, and merge per part."""
    longer = clients.steps.trained_longer()
    shared = {client.handle: 0 for client in clients.cohort}
    asked = clients.asked_by(longer)
    updates = tuple(asked.train(state.clusters, shared, streams, state))
    cohort = _members_in(clients.cohort, {each.handle for each in updates})
    noise = longer.noise_events(cohort)
    trained = clients.among(cohort).asked_by(
        replace(longer, noise_events=no_noise_events)
    )
    # Updates that are not finite show no group, and would be one: the merge refuses them.
    finite = tuple(finite_updates(updates))
    able = _members_in(cohort, {each.handle for each in finite})
    if len(able) <= len(state.clusters):
        return _shared_round(state, trained, streams, updates).preceded_by(noise)
    candidates = _candidates(able, finite, len(state.clusters), streams)
    best = max(candidates, key=lambda name: candidates[name].gap - GAP_PENALTY[name])
    split = {client.handle: 0 for client in cohort} | {
        client.handle: int(j)
        for client, j in zip(able, candidates[best].labels, strict=True)
    }
    parts = ClientsAssigned(split, "split")
    moved = trained.train_and_aggregate(state, parts, streams, updates)
    return RoundResult(
        moved.state, (*noise, _groups_sought_event(candidates, best), *moved.events)
    )


def _members_in(cohort: Cohort, handles: Collection[Handle]) -> Cohort:
    return tuple(client for client in cohort if client.handle in handles)


def _kept_round(state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
    """Keep the split; who was not there when it was made takes the lowest loss."""
    kept = {c.handle: state.assignment.get(c.handle) for c in clients.cohort}
    newcomers = tuple(c for c in clients.cohort if kept[c.handle] is None)
    kept |= clients.among(newcomers).nearest(state, streams)
    placed = {handle: j for handle, j in kept.items() if j is not None}
    return clients.train_and_aggregate(state, ClientsAssigned(placed, "split"), streams)


CLEAR_GAP = 2.0
"""Gap of a split by updates from which on nothing else is asked of the clients."""

GAP_PENALTY = {"updates": 0.0, "input statistics": 2.0}
"""Statistics tell of the data and have few dimensions, where clouds look like groups."""


def _candidates(
    cohort: Cohort, updates: Sequence[ClientUpdate], num_clusters: int, streams: Streams
) -> dict[str, Split]:
    """Return a split by the updates and, if it is not clear, one by input statistics.

    Rotations show in what a model learns and hardly in the statistics of the pixels;
    brightness is the other way round.
    """

    def split(name: str, points: Float[ndarray, "clients features"]) -> Split:
        return gap_split(points, num_clusters, streams.at("split", name).generator())

    by_updates = split("updates", update_directions([each.update for each in updates]))
    seen = all(len(client.train) for client in cohort)  # not where they are apart
    if by_updates.gap >= CLEAR_GAP or not seen:
        return {"updates": by_updates}
    statistics = np.stack([_statistics(client) for client in cohort])
    return {
        "updates": by_updates,
        "input statistics": split("input statistics", statistics),
    }


def _statistics(client: Client) -> Float[ndarray, " twice_channels"]:
    """Return mean and deviation of the client's inputs per channel."""
    inputs = to_floats(client.train.inputs).double()
    channels = (
        inputs.flatten(2).transpose(0, 1).flatten(1) if inputs.dim() > 2 else inputs.T
    )
    return np.concatenate([channels.mean(dim=1), channels.std(dim=1)])


def _groups_sought_event(candidates: Mapping[str, Split], best: str) -> GroupsSought:
    asked = "input statistics" in candidates
    return GroupsSought(
        gaps={name: split.gap for name, split in candidates.items()},
        chosen=best,
        sent="mean and deviation of its inputs per channel" if asked else "nothing",
    )
