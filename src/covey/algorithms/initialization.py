"""How the cluster models come to differ in the first place.

With random initial models IFCA often collapses: one model wins every client in the first
round, and no other ever learns. So a run may start from the known groups (an oracle), or
warm: a few shared rounds, then a split of the clients by what they sent. Either way the
clients keep their first cluster for a few rounds before they choose: after one round its
models are still so alike that chance would decide, and the groups would be lost again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey.aggregation import ClientUpdate, finite_updates
from covey.algorithms.base import (
    Cohort,
    RoundResult,
    ServerState,
    Strategy,
    initial_state,
)
from covey.algorithms.round_steps import NoiseEvents, Steps, Train, no_noise_events
from covey.clustering import Split, gap_split, update_directions
from covey.data.examples import Client, to_floats
from covey.events import ClientsAssigned, GroupsSought
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "WarmStart",
    "different_models",
    "group_initialized",
    "one_model",
    "warm_started",
]

Init = Callable[[Streams], ServerState]


def different_models(init: Callable[[Streams], Params], num_clusters: int) -> Init:
    """Start every cluster from a random model of its own (line 2 of Algorithm 1)."""

    def start(streams: Streams) -> ServerState:
        return initial_state(
            tuple(init(streams.at("initial model", j)) for j in range(num_clusters))
        )

    return start


def one_model(init: Callable[[Streams], Params], num_clusters: int) -> Init:
    """Start every cluster from the same random model; something must tell them apart."""

    def start(streams: Streams) -> ServerState:
        return initial_state((init(streams.at("initial model", 0)),) * num_clusters)

    return start


def group_initialized(strategy: Strategy, steps: Steps, kept_rounds: int) -> Strategy:
    """Assign every client to its true group at first: an oracle, for simulations."""

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        if state.round_index >= kept_rounds:
            return strategy.play_round(state, cohort, streams)
        known = {client.handle: client.group or 0 for client in cohort}
        return steps.train_and_aggregate(
            state, cohort, ClientsAssigned(known, "groups"), streams
        )

    return strategy._replace(play_round=play_round)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A few shared rounds, then one round after which the server splits the cohort.

    Attributes:
        shared_rounds: rounds of FedAvg before the split.
        kept_rounds: rounds from the split on in which clients keep their part.
        train: the split round's longer training, which makes differences show.
        noise_events: what is told of the noise in that.
    """

    shared_rounds: int
    kept_rounds: int
    train: Train
    noise_events: NoiseEvents = no_noise_events


def warm_started(strategy: Strategy, steps: Steps, warm: WarmStart) -> Strategy:
    """Find the groups from what clients send, then play on with the strategy.

    Shared rounds and the split round are ordinary rounds: through the same aggregation,
    with their participants in the ledger.
    """

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        if state.assignment:
            if state.round_index < warm.shared_rounds + warm.kept_rounds:
                return _kept_round(steps, state, cohort, streams)
            return strategy.play_round(state, cohort, streams)
        if state.round_index < warm.shared_rounds or len(cohort) <= _clusters(state):
            return _shared_round(steps, state, cohort, streams)
        longer = replace(steps, train=warm.train, noise_events=warm.noise_events)
        return _split_round(longer, state, cohort, streams)

    return strategy._replace(play_round=play_round)


def _shared_round(
    steps: Steps, state: ServerState, cohort: Cohort, streams: Streams
) -> RoundResult:
    """Train one model together; every cluster gets it."""
    everybody = ClientsAssigned({client.handle: 0 for client in cohort}, "shared")
    alone = replace(
        initial_state(state.clusters[:1]),
        clips=state.clips[:1],
        stalled=state.stalled & {0},
    )
    played = steps.train_and_aggregate(alone, cohort, everybody, streams)
    models = len(state.clusters)
    after = replace(
        state,
        clips=played.state.clips * models,
        stalled=frozenset(range(models if played.state.stalled else 0)),
    )
    return RoundResult(after.with_models(played.state.clusters * models), played.events)


def _split_round(
    steps: Steps, state: ServerState, cohort: Cohort, streams: Streams
) -> RoundResult:
    """Train the shared model, split the cohort by what came back, and merge per part."""
    shared = {client.handle: 0 for client in cohort}
    updates = tuple(steps.train(state.clusters, cohort, shared, streams))
    cohort = _members_in(cohort, {each.handle for each in updates})
    merging = replace(steps.with_updates(updates), noise_events=no_noise_events)
    # Updates that are not finite show no group, and would be one; they are refused.
    finite = tuple(finite_updates(updates))
    able = _members_in(cohort, {each.handle for each in finite})
    if len(able) <= _clusters(state):
        played = _shared_round(merging, state, cohort, streams)
        return played._replace(events=(*steps.noise_events(cohort), *played.events))
    candidates = _candidates(able, finite, _clusters(state), streams)
    best = max(candidates, key=lambda name: candidates[name].gap - GAP_PENALTY[name])
    split = {client.handle: 0 for client in cohort} | {
        client.handle: int(j)
        for client, j in zip(able, candidates[best].labels, strict=True)
    }
    moved = merging.train_and_aggregate(
        state, cohort, ClientsAssigned(split, "split"), streams
    )
    noise = steps.noise_events(cohort)
    return RoundResult(
        moved.state, (*noise, _groups_sought_event(candidates, best), *moved.events)
    )


def _members_in(cohort: Cohort, handles: Collection[Handle]) -> Cohort:
    return tuple(client for client in cohort if client.handle in handles)


def _clusters(state: ServerState) -> int:
    return len(state.clusters) // state.releases


def _kept_round(
    steps: Steps, state: ServerState, cohort: Cohort, streams: Streams
) -> RoundResult:
    """Keep the split; who was not there when it was made takes the lowest loss."""
    kept = {c.handle: state.assignment.get(c.handle) for c in cohort}
    newcomers = tuple(c for c in cohort if kept[c.handle] is None)
    kept |= steps.nearest(state, newcomers, streams)
    placed = {handle: j for handle, j in kept.items() if j is not None}
    return steps.train_and_aggregate(
        state, cohort, ClientsAssigned(placed, "split"), streams
    )


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
    seen = all(len(client.train) for client in cohort)  # not where they are remote
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
