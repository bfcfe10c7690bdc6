"""FedAvg, in one cluster or in several isolated ones, and local training.

Read `fedavg` first: it is the smallest complete strategy.
"""

from collections.abc import Callable

from covey.algorithms.base import (
    Cohort,
    RoundResult,
    ServerState,
    Strategy,
    initial_state,
)
from covey.algorithms.round_steps import Steps
from covey.events import ClientsAssigned
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["fedavg", "isolated", "local_training"]


def fedavg(init: Callable[[Streams], Params], steps: Steps) -> Strategy:
    """Let every client train the one model, and take the mean.

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from
        Decentralized Data, 2017.
    """

    def start(streams: Streams) -> ServerState:
        return initial_state((init(streams.at("initial model", 0)),))

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        everybody = ClientsAssigned({client.handle: 0 for client in cohort}, "shared")
        return steps.train_and_aggregate(state, cohort, everybody, streams)

    def conclude(state: ServerState, cohort: Cohort, _: Streams) -> RoundResult:
        final = ClientsAssigned({client.handle: 0 for client in cohort}, "final")
        return RoundResult(state.with_choices(final.clusters), (final,))

    return Strategy(start, play_round, conclude)


def isolated(
    init: Callable[[Streams], Params],
    steps: Steps,
    num_clusters: int,
    population: Cohort,
) -> Strategy:
    """Put every client into a cluster by chance, for good, and play FedAvg in each.

    j_i ~ Uniform{0, ..., K - 1}, for each client i by a draw of its own

    All clusters start from one model. What a client sends moves its own cluster and never
    reaches another, so when it leaves only that one has to be trained again
    (`freeze_clusters`).
    The papers draw the clusters otherwise; chance has to know nothing of a client, and
    nobody's cluster depends on who else is there. Who joins later draws in its first round.
    FedCIO's last mean over clusters is not taken.

    References:
        Su, Li, Asynchronous Federated Unlearning (KNOT), INFOCOM 2023.
        Qiu, Wang, Xu, Cui, Shen, FedCIO: Efficient Exact Federated Unlearning with
        Clustering, Isolation, and One-shot Aggregation, IEEE BigData 2023.
    """

    def drawn(clients: Cohort, streams: Streams) -> dict[Handle, int]:
        return {
            client.handle: int(
                streams.at("cluster", client.name).generator().integers(num_clusters)
            )
            for client in clients
        }

    def start(streams: Streams) -> ServerState:
        model = init(streams.at("initial model", 0))
        fresh = initial_state((model,) * num_clusters)
        return fresh.with_choices(drawn(population, streams))

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        new = tuple(c for c in cohort if c.handle not in state.assignment)
        placed = {**state.assignment, **drawn(new, streams)}
        own = {client.handle: placed[client.handle] for client in cohort}
        return steps.train_and_aggregate(
            state, cohort, ClientsAssigned(own, "chance"), streams
        )

    def conclude(state: ServerState, cohort: Cohort, _: Streams) -> RoundResult:
        placed = state.assignment
        own = {c.handle: placed[c.handle] for c in cohort if c.handle in placed}
        return RoundResult(state, (ClientsAssigned(own, "final"),))

    return Strategy(start, play_round, conclude)


def local_training(
    init: Callable[[Streams], Params], steps: Steps, population: Cohort
) -> Strategy:
    """Let every client train a model of its own: a cluster per client, never merged."""
    own = {client.handle: j for j, client in enumerate(population)}

    def start(streams: Streams) -> ServerState:
        model = init(streams.at("initial model", 0))
        return initial_state((model,) * len(population)).with_choices(own)

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        chosen = {client.handle: own[client.handle] for client in cohort}
        return steps.train_and_aggregate(
            state, cohort, ClientsAssigned(chosen, "clients"), streams
        )

    def conclude(state: ServerState, _: Cohort, __: Streams) -> RoundResult:
        return RoundResult(state.with_choices(own), (ClientsAssigned(own, "final"),))

    return Strategy(start, play_round, conclude)
