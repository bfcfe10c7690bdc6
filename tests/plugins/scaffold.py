"""SCAFFOLD: steps are corrected by how a client's gradients differ from everybody's.

client: g <- g - c_i + c;  c_i <- c_i - c + (theta - w_i) / (K eta)
server: theta <- m + beta v;  v <- beta v + m - theta, with m the mean of w_i (Nesterov:
        beta = 0 is SCAFFOLD);  c <- c + m / N (mean of c_i after - c_i before)

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, 2020,
Algorithm 1, option II. The server learns the mean of the new c_i from that of the w_i.
"""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

import covey
from covey import Clients, ServerState, Streams


class Control(covey.ComponentState):
    c: Mapping[str, Tensor] = {}
    v: Mapping[str, Tensor] = {}


class Drift(covey.Objective):
    elementwise = True

    def correction(self, weights, start, memory):
        own = memory.get("own", [w * 0 for w in start])
        return [c - c_i for c, c_i in zip(memory["all"], own, strict=True)]

    def remember(self, memory, start, trained, steps, recipe):
        own = memory.get("own", {name: value * 0 for name, value in start.items()})
        scale = steps * recipe.learning_rate
        gone = {name: (start[name] - trained[name]) / scale for name in start}
        return {"own": {n: own[n] - memory["all"][n] + gone[n] for n in start}}


class Scaffold(covey.Algorithm):
    scale: float = 1.0  # K eta: steps times learning rate
    clients: int = 6
    beta: float = 0.0

    @property
    def objective(self) -> Drift:
        return Drift()

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> covey.RoundResult:
        old, known = state.clusters[0], state.get_state(Control)
        nothing = {name: value * 0 for name, value in old.items()}
        c, v = known.c or nothing, known.v or nothing
        result = clients.sent_along(all=c).train_and_aggregate(
            state, clients.all_in_one("shared"), streams
        )
        mean, share = result.state.clusters[0], len(clients) / self.clients
        more = {n: (old[n] - mean[n]) / self.scale - c[n] for n in old}
        v = {n: self.beta * v[n] + mean[n] - old[n] for n in old}
        ahead = {n: mean[n] + self.beta * v[n] for n in old}
        control = Control(c={n: c[n] + share * more[n] for n in old}, v=v)
        return result._replace(state=replace(result.state, clusters=(ahead,)).with_state(control))
