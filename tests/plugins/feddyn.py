"""FedDyn: every client keeps the gradient at which it stopped, and the server their sum.

client: min f_i(w) - <h_i, w> + alpha / 2 ||w - theta||^2; h_i <- h_i - alpha (w - theta)
server: h <- h - alpha / m sum_i (w_i - theta);  theta <- mean of w_i - h / alpha

Acar et al., Federated Learning Based on Dynamic Regularization, 2021, Algorithm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

import covey
from covey import Clients, ServerState, Streams


class Drift(covey.ComponentState):
    h: Mapping[str, Tensor] = {}


class Dynamic(covey.Objective):
    alpha: float = 0.1

    def correction(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], memory: Any
    ) -> list[Tensor]:
        past = memory.get("h", [w * 0 for w in start])
        rows = zip(weights, start, past, strict=True)
        return [self.alpha * (w - s) - h for w, s, h in rows]

    def remember(self, memory, start, trained, steps, recipe):
        past = memory.get("h", {name: value * 0 for name, value in start.items()})
        moved = {name: trained[name] - start[name] for name in start}
        return {"h": {n: past[n] - self.alpha * moved[n] for n in start}}


class FedDyn(covey.Algorithm):
    alpha: float = 0.1

    @property
    def objective(self) -> Dynamic:
        return Dynamic(alpha=self.alpha)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> covey.RoundResult:
        result = clients.train_and_aggregate(state, clients.all_in_one("shared"), streams)
        old, mean = state.clusters[0], result.state.clusters[0]
        share = len(clients) / max(1, len(result.state.assignment))
        past = state.get_state(Drift).h or {name: value * 0 for name, value in old.items()}
        h = {n: past[n] - self.alpha * share * (mean[n] - old[n]) for n in old}
        model = {n: mean[n] - h[n] / self.alpha for n in old}
        return result._replace(
            state=replace(result.state, clusters=(model,)).with_state(Drift(h=h))
        )
