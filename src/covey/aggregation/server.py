"""Server optimizers: what the server makes of the aggregated models."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from covey.base.built_ins import component
from covey.base.component_state import ComponentState, States, get_state, with_state
from covey.base.components import AboveZero, Component, OwnFunction
from covey.base.names import Params
from covey.base.params import trained

Models = tuple[Params, ...]
"""A model per cluster."""

ServerStep = Callable[[Models, Models, States], tuple[Models, States]]
"""From the models before a round, the aggregated ones, and what all components keep."""

Moments = tuple[Mapping[str, Tensor], ...]
"""Per cluster and parameter, what an optimizer keeps; empty before there is anything."""


class ServerOptimizer(Component):
    """What the server makes of the models that the aggregation returns.

    Write one by deriving from it. Its options are annotated fields; what it keeps from
    round to round is a `ComponentState`:

    >>> class Velocity(ComponentState):
    ...     of: tuple[Mapping[str, Tensor], ...] = ()
    >>> class Heavy(ServerOptimizer):
    ...     beta: float = 0.9
    ...
    ...     def step(self, models, aggregated, states):
    ...         old = get_state(states, Velocity).of
    ...         ...
    ...         return moved, with_state(states, Velocity(of=new))

    The difference `model - aggregated` takes the place of a gradient (a pseudo-gradient).
    A step looks at nothing but the aggregated models and earlier steps: a guarantee of
    differential privacy for the aggregation covers it, as post-processing. It draws
    nothing, so that a round that is played again comes to the same bits.

    It sees all clusters' models: everybody's exposure counts in every cluster, unless a
    subclass says for itself that it `keeps_clusters_apart`.

    References:
        Reddi et al., Adaptive Federated Optimization, 2021, Algorithm 1.
    """

    keeps_clusters_apart: ClassVar[bool] = False

    @abstractmethod
    def step(self, models: Models, aggregated: Models, states: States) -> tuple[Models, States]:
        """Return the next cluster models, and what all components keep.

        Args:
            models: of the clusters, before the round.
            aggregated: as the aggregation returns them. What no gradient moves, like
                BatchNorm's statistics, should be taken as it is here (`moved`).
            states: what all components keep; change one's own only (`kept`, `keep`).
        """


class OwnServerOptimizer(ServerOptimizer, OwnFunction):
    """A user's function of models, aggregated models and states."""

    def step(self, *args: Any, **named: Any) -> tuple[Models, States]:  # noqa: ANN401
        """Return what the function says."""
        return self.call(*args, **named)


@component("server_optimizer", "none", default=True)
class NoServerOptimizer(ServerOptimizer):
    """The aggregated models are the next ones."""

    keeps_clusters_apart: ClassVar[bool] = True

    def step(
        self,
        models: Models,  # noqa: ARG002 - for others
        aggregated: Models,
        states: States,
    ) -> tuple[Models, States]:
        """Return the aggregated models."""
        return aggregated, states


def moves(model: Params, aggregated: Params) -> bool:
    """Say whether a round moved this cluster's model; else no momentum moves it either.

    A cluster that no client trained, or that waited, has the same bits as before. It stays,
    and so does what is kept of it: a frozen model must not drift.
    """
    return model is not aggregated and any(
        not torch.equal(value, aggregated[name]) for name, value in model.items()
    )


def moment(moments: Moments, j: int, model: Params, start: float = 0.0) -> Params:
    """Return what is kept of cluster j; before there is anything, `start` everywhere."""
    if j < len(moments) and moments[j]:
        return moments[j]
    return {name: torch.full_like(v, start) for name, v in trained(model).items()}


def moved(aggregated: Params, places: Params) -> Params:
    """Return the aggregated model with these parameters.

    What no gradient moves (BatchNorm's statistics, counters, masks) stays as aggregated.
    """
    return {name: places.get(name, value) for name, value in aggregated.items()}


class Velocity(ComponentState):
    """What `Momentum` keeps."""

    key: ClassVar[str] = "server-momentum"

    velocity: Moments = ()


@component("server_optimizer", "momentum")
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

    learning_rate: AboveZero = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9

    def step(self, models: Models, aggregated: Models, states: States) -> tuple[Models, States]:
        """Move every cluster that its clients moved by its velocity."""
        before = get_state(states, Velocity).velocity
        after, velocity = list(aggregated), list[Params]()
        for j, (model, target) in enumerate(zip(models, aggregated, strict=True)):
            v = moment(before, j, model)
            if moves(model, target):
                start = trained(model)
                v = {k: self.momentum * v[k] + (x - target[k]) for k, x in start.items()}
                step = {k: x - self.learning_rate * v[k] for k, x in start.items()}
                after[j] = moved(target, step)
            velocity.append(v)
        return tuple(after), with_state(states, Velocity(velocity=tuple(velocity)))


Decay = Annotated[float, Field(ge=0, lt=1)]


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

    learning_rate: AboveZero = 0.01
    beta_1: Decay = 0.9
    beta_2: Decay = 0.99
    tau: AboveZero = 1e-3

    @abstractmethod
    def second(self, variance: Tensor, square: Tensor) -> Tensor:
        """Return the second moment after a change with this square."""

    def step(self, models: Models, aggregated: Models, states: States) -> tuple[Models, States]:
        """Move every cluster that its clients moved."""
        before = get_state(states, AdaptiveState)
        rate, tau = self.learning_rate, self.tau
        after, means, variances = list(aggregated), list[Params](), list[Params]()
        for j, (model, target) in enumerate(zip(models, aggregated, strict=True)):
            m, v = moment(before.mean, j, model), moment(before.variance, j, model, tau**2)
            if moves(model, target):
                start = trained(model)
                change = {k: target[k] - x for k, x in start.items()}
                m = {k: self.beta_1 * m[k] + (1 - self.beta_1) * d for k, d in change.items()}
                v = {k: self.second(v[k], d.square()) for k, d in change.items()}
                step = {k: x + rate * m[k] / (v[k].sqrt() + tau) for k, x in start.items()}
                after[j] = moved(target, step)
            means.append(m)
            variances.append(v)
        state = AdaptiveState(mean=tuple(means), variance=tuple(variances))
        return tuple(after), with_state(states, state)


@component("server_optimizer", "adam")
class FedAdam(AdaptiveOptimizer):
    """FedAdam: v_j <- beta_2 v_j + (1 - beta_2) d^2.

    References:
        Reddi et al., Adaptive Federated Optimization, 2021, Algorithm 2.
    """

    def second(self, variance: Tensor, square: Tensor) -> Tensor:
        """Return the moving average of squares."""
        return self.beta_2 * variance + (1 - self.beta_2) * square


@component("server_optimizer", "yogi")
class Yogi(AdaptiveOptimizer):
    """FedYogi: v_j <- v_j - (1 - beta_2) d^2 sign(v_j - d^2).

    Unlike Adam's, the second moment changes by no more than the latest square: steps do
    not grow at once after a few small changes.

    References:
        Reddi et al., Adaptive Federated Optimization, 2021, Algorithm 2.
        Zaheer et al., Adaptive Methods for Nonconvex Optimization, 2018.
    """

    def second(self, variance: Tensor, square: Tensor) -> Tensor:
        """Return the second moment, moved towards the square by a share of it."""
        return variance - (1 - self.beta_2) * square * (variance - square).sign()
