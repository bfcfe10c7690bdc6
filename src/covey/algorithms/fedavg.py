"""FedAvg, local training, FedProx and Ditto; `FedAvg` is the smallest complete algorithm."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from covey.algorithms.algorithm import Algorithm, Traits
from covey.algorithms.clients import Clients, Setup
from covey.algorithms.state import RoundResult, ServerState
from covey.base.built_ins import component
from covey.base.components import NotNegative
from covey.base.events import ClientsAssigned
from covey.base.rng import Streams
from covey.engine.recipe import Objective, Proximal


@component("algorithm", "fedavg")
class FedAvg(Algorithm):
    """Let every client train the one model, and take the mean.

    theta <- sum_i w_i theta_i / sum_i w_i

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from
        Decentralized Data, 2017.
    """

    traits: ClassVar[Traits] = Traits(chooses_clusters=False, calibrates=True, sends_sums=True)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let all of them train, and aggregate."""
        everybody = clients.all_in_one("shared")
        return clients.train_and_aggregate(state, everybody, streams)


@component("algorithm", "local")
class LocalTraining(Algorithm):
    """Let every client train a model of its own: a cluster per client, never merged."""

    traits: ClassVar[Traits] = Traits(chooses_clusters=False, one_client_each=True)

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        """Give every client its own copy of one model."""
        own = {client.handle: j for j, client in enumerate(setup.population)}
        return super().init(setup, streams).with_choices(own)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let each of them train its own."""
        own = {client.handle: state.assignment[client.handle] for client in clients.cohort}
        return clients.train_and_aggregate(state, ClientsAssigned(own, "clients"), streams)


@component("algorithm", "fedprox")
class FedProx(FedAvg):
    """Let every client minimise its loss and a pull towards the shared model.

    theta_i <- argmin_w  f_i(w) + mu / 2 ||w - theta||^2;  theta <- mean of theta_i

    With mu = 0 this is FedAvg, to the bit.

    Attributes:
        mu: how strong the pull is.

    References:
        Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, Federated Optimization in
        Heterogeneous Networks, 2020, Algorithm 2.
    """

    mu: NotNegative = 0.01

    @property
    def objective(self) -> Objective:
        """The pull."""
        return Proximal(mu=self.mu)


class NearShared(Objective):
    """Pull a client's own model towards the shared one: lam (v - theta)."""

    elementwise = True

    lam: NotNegative

    def correction(
        self,
        weights: Sequence[Tensor],
        start: Sequence[Tensor],  # noqa: ARG002 - of the own model
        memory: Mapping[str, Sequence[Tensor]],
    ) -> Sequence[Tensor] | None:
        """Return lam (v - theta); nothing where lam is 0, to the bit."""
        if self.lam == 0:
            return None
        pairs = zip(weights, memory["shared"], strict=True)
        return [self.lam * (own - shared) for own, shared in pairs]


@component("algorithm", "ditto")
class Ditto(FedAvg):
    """Let every client train a model of its own too, near the one that all share.

    theta <- FedAvg;  v_i <- argmin_v  f_i(v) + lam / 2 ||v - theta||^2

    v_i takes as many steps as the shared model's training, from where it last ended; a
    client that comes for the first time begins at the shared model. It never leaves the
    client, and its accuracy is the client's. Risk is measured of theta, which is all that
    anybody else sees. With lam = 0 every client trains alone; theta is FedAvg's in any
    case, to the bit. lam above 2 / learning_rate makes v_i diverge.

    Attributes:
        lam: how near the own model stays to the shared one.

    References:
        Li, Hu, Beirami, Smith, Ditto: Fair and Robust Federated Learning Through
        Personalization, 2021, Algorithm 1.
    """

    lam: NotNegative = 0.1

    @property
    def personal(self) -> Objective:
        """The pull towards the shared model."""
        return NearShared(lam=self.lam)
