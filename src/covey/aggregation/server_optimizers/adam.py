"""Federated averaging with a step size per coordinate (FedAdam)."""

from abc import abstractmethod
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

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

__all__ = ["Adam", "AdaptiveOptimizer", "AdaptiveState"]

Decay = Annotated[float, Field(ge=0, lt=1)]
Above0 = Annotated[float, Field(gt=0)]


class AdaptiveState(ComponentState):
    """What an adaptive optimizer keeps: the first two moments of pseudo-gradients."""

    key: ClassVar[str] = "server-adaptive"

    mean: Moments = ()
    variance: Moments = ()


class AdaptiveOptimizer(ServerOptimizer):
    """A step per coordinate, the shorter the larger its changes have been.

    d = aggregated_j - theta_j;  m_j <- beta_1 m_j + (1 - beta_1) d
    theta_j <- theta_j + eta m_j / (sqrt(v_j) + tau)

    v_j is the `second` moment of d, and begins at tau^2; m_j begins at 0. There is no
    bias correction, as in the paper.

    Attributes:
        learning_rate: eta: about how far a parameter moves in a round.
        beta_1: weight of the past in m.
        beta_2: weight of the past in v.
        tau: how much it adapts; the smaller the more.
    """

    learning_rate: Above0 = 0.01
    beta_1: Decay = 0.9
    beta_2: Decay = 0.99
    tau: Above0 = 1e-3

    @abstractmethod
    def second(self, variance: Tensor, square: Tensor) -> Tensor:
        """Return the second moment after a change with this square."""

    def step(
        self,
        models: tuple[Params, ...],
        aggregated: tuple[Params, ...],
        states: States,
    ) -> tuple[tuple[Params, ...], States]:
        """Move every cluster that its clients moved."""
        before = kept(states, AdaptiveState)
        after, means, variances = list[Params](), list[Params](), list[Params]()
        for j, (model, target) in enumerate(zip(models, aggregated, strict=True)):
            m = moment(before.mean, j, model)
            v = moment(before.variance, j, model, self.tau**2)
            place = target
            if moves(model, target):
                place, m, v = self._moved(model, target, m, v)
            after.append(place)
            means.append(m)
            variances.append(v)
        state = AdaptiveState(mean=tuple(means), variance=tuple(variances))
        return tuple(after), keep(states, state)

    def _moved(
        self, model: Params, target: Params, m: Params, v: Params
    ) -> tuple[Params, Params, Params]:
        start = trained(model)
        change = {k: target[k] - x for k, x in start.items()}
        m = {k: self.beta_1 * m[k] + (1 - self.beta_1) * d for k, d in change.items()}
        v = {k: self.second(v[k], d.square()) for k, d in change.items()}
        rate, tau = self.learning_rate, self.tau
        step = {k: x + rate * m[k] / (v[k].sqrt() + tau) for k, x in start.items()}
        return moved(target, step), m, v


class Adam(AdaptiveOptimizer):
    """FedAdam: v_j <- beta_2 v_j + (1 - beta_2) d^2.

    References:
        Reddi et al., Adaptive Federated Optimization, 2021, Algorithm 2.
    """

    def second(self, variance: Tensor, square: Tensor) -> Tensor:
        """Return the moving average of squares."""
        return self.beta_2 * variance + (1 - self.beta_2) * square
