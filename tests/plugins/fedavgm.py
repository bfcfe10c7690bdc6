"""FedAvg with server momentum, which keeps a velocity of its own.

v <- beta v + (theta_mean - theta);  theta <- theta + v = theta_mean + beta v_before

Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification, 2019.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import Field
from torch import Tensor

from covey import Algorithm, Clients, ComponentState, RoundResult, ServerState, Streams


class Velocity(ComponentState):
    value: Mapping[str, Tensor] = {}


class FedAvgM(Algorithm):
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        together = clients.all_in_one("shared")
        result = clients.train_and_aggregate(state, together, streams)
        old, mean = state.clusters[0], result.state.clusters[0]
        before = state.get_state(Velocity).value
        velocity = {
            name: self.beta * before.get(name, 0) + (value - old[name])
            for name, value in mean.items()
            if value.is_floating_point()
        }
        moved = {name: mean[name] + self.beta * before.get(name, 0) for name in velocity}
        after = replace(result.state, clusters=({**mean, **moved},))
        return result._replace(state=after.with_state(Velocity(value=velocity)))
