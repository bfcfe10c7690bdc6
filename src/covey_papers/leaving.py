"""Isolated clusters: FedAvg in several clusters that never learn of each other."""

from typing import ClassVar

from covey import Algorithm, Clients, RoundResult, ServerState, Setup, Streams, Traits
from covey.algorithms.state import Cohort
from covey.base.components import Positive
from covey.base.events import ClientsAssigned
from covey.base.names import Handle


class Isolated(Algorithm):
    """Put every client into a cluster by chance, for good, and play FedAvg in each.

    j_i ~ Uniform{0, ..., K - 1}, for each client i by a draw of its own

    All clusters start from one model. What a client sends moves its own cluster and never
    reaches another, so when it leaves only that one has to be trained again
    (`Simulated.untouched`). The papers draw the clusters otherwise; chance has to know nothing
    of a client, and no client's cluster depends on who else is there. Who joins later draws
    in its first round. FedCIO's last mean over clusters is not taken.

    References:
        Su, Li, Asynchronous Federated Unlearning (KNOT), INFOCOM 2023.
        Qiu, Wang, Xu, Cui, Shen, FedCIO: Efficient Exact Federated Unlearning with
        Clustering, Isolation, and One-shot Aggregation, IEEE BigData 2023.
    """

    traits: ClassVar[Traits] = Traits(chooses_clusters=False, keeps_clusters_apart=True)

    num_clusters: Positive = 2

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        """Start every cluster from one model, with its clients."""
        fresh = super().init(setup, streams)
        return fresh.with_choices(self._drawn(setup.population, streams))

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let each client train the model of its cluster."""
        new = tuple(c for c in clients.cohort if c.handle not in state.assignment)
        placed = {**state.assignment, **self._drawn(new, streams)}
        own = {client.handle: placed[client.handle] for client in clients.cohort}
        chosen = ClientsAssigned(own, "chance")
        return clients.train_and_aggregate(state, chosen, streams)

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Leave every client where it is."""
        del streams
        placed = state.assignment
        own = {c.handle: placed[c.handle] for c in clients.cohort if c.handle in placed}
        return RoundResult(state, (ClientsAssigned(own, "final"),))

    def _drawn(self, clients: Cohort, streams: Streams) -> dict[Handle, int]:
        return {
            client.handle: int(
                streams.at("cluster", client.name).generator().integers(self.num_clusters)
            )
            for client in clients
        }
