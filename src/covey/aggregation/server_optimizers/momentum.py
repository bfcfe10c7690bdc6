"""Federated averaging with server momentum (FedAvgM)."""

from typing import Annotated, ClassVar

from pydantic import Field

from covey.aggregation.server_optimizers.base import (
    Moments,
    ServerOptimizer,
    moment,
    moved,
    moves,
)
from covey.components.state import ComponentState, States, keep, kept
from covey.params import trained
from covey.types import Params

__all__ = ["Momentum", "Velocity"]


class Velocity(ComponentState):
    """What `Momentum` keeps."""

    key: ClassVar[str] = "server-momentum"

    velocity: Moments = ()


class Momentum(ServerOptimizer):
    """FedAvgM: the server moves on in the direction of earlier rounds.

    g = theta_j - aggregated_j;  v_j <- beta v_j + g;  theta_j <- theta_j - eta v_j

    Attributes:
        learning_rate: eta.
        momentum: beta; 0, with eta = 1, is federated averaging.

    References:
        Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution for
        Federated Visual Classification, 2019, section 4.3.
    """

    learning_rate: Annotated[float, Field(gt=0)] = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9

    def step(
        self,
        models: tuple[Params, ...],
        aggregated: tuple[Params, ...],
        states: States,
    ) -> tuple[tuple[Params, ...], States]:
        """Move every cluster that its clients moved by its velocity."""
        before = kept(states, Velocity).velocity
        after, velocity = list[Params](), list[Params]()
        for j, (model, target) in enumerate(zip(models, aggregated, strict=True)):
            v, place = moment(before, j, model), target
            if moves(model, target):
                start = trained(model)
                v = {
                    k: self.momentum * v[k] + (x - target[k]) for k, x in start.items()
                }
                step = {k: x - self.learning_rate * v[k] for k, x in start.items()}
                place = moved(target, step)
            after.append(place)
            velocity.append(v)
        return tuple(after), keep(states, Velocity(velocity=tuple(velocity)))
