"""Ditto: every client keeps a model of its own, pulled towards the one that all share.

theta <- FedAvg;  v_i <- argmin_v f_i(v) + strength / 2 ||v - theta||^2

Li, Hu, Beirami, Smith, Ditto: Fair and Robust Federated Learning Through Personalization,
2021, Algorithm 1.
"""

import covey
from covey import Clients, ServerState, Streams


class Pull(covey.Objective):
    elementwise = True
    strength: float = 0.1

    def correction(self, weights, start, memory):
        shared = memory["shared"]
        return [self.strength * (v - theta) for v, theta in zip(weights, shared, strict=True)]


class Ditto(covey.Algorithm):
    strength: float = 0.1

    @property
    def personal(self) -> Pull:
        return Pull(strength=self.strength)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> covey.RoundResult:
        shared = clients.all_in_one("shared")
        return clients.train_and_aggregate(state, shared, streams)
