"""FedAvg, and local training.

Read `FedAvg` first: it is the smallest complete algorithm.
"""

from typing import ClassVar

from covey.algorithms.algorithm import Algorithm, Setup
from covey.algorithms.base import Cohort, RoundResult, ServerState
from covey.algorithms.clients import Clients
from covey.components.capability import Capability
from covey.events import ClientsAssigned
from covey.rng import Streams
from covey.types import Handle

__all__ = ["FedAvg", "LocalTraining"]


class FedAvg(Algorithm):
    """Let every client train the one model, and take the mean.

    theta <- sum_i w_i theta_i / sum_i w_i

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from
        Decentralized Data, 2017.
    """

    rules_out = frozenset({Capability.CLUSTER_CHOICE})
    calibrates: ClassVar[bool] = True
    sends_sums: ClassVar[bool] = True
    summary: ClassVar[str] = "has one model for everybody"

    def round(
        self, state: ServerState, clients: Clients, streams: Streams
    ) -> RoundResult:
        """Let all of them train, and aggregate."""
        everybody = clients.all_in(0, "shared")
        return clients.train_and_aggregate(state, everybody, streams)


class LocalTraining(Algorithm):
    """Let every client train a model of its own: a cluster per client, never merged."""

    requires = frozenset({Capability.KNOWN_POPULATION})
    rules_out = frozenset(
        {Capability.CLUSTER_CHOICE, Capability.SHARED_CLUSTERS, Capability.SHARED_MODEL}
    )
    one_client_each: ClassVar[bool] = True
    summary: ClassVar[str] = "gives each client a model of its own"

    def num_models(self, population: Cohort) -> int:
        """Return one for each client."""
        return len(population)

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        """Give every client its own copy of one model."""
        own = {client.handle: j for j, client in enumerate(setup.population)}
        return super().init(setup, streams).with_choices(own)

    def round(
        self, state: ServerState, clients: Clients, streams: Streams
    ) -> RoundResult:
        """Let each of them train its own."""
        return clients.train_and_aggregate(
            state, ClientsAssigned(_own(state, clients), "clients"), streams
        )


def _own(state: ServerState, clients: Clients) -> dict[Handle, int]:
    return {client.handle: state.assignment[client.handle] for client in clients.cohort}
