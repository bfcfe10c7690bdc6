"""What a server optimizer is: what the server makes of the aggregated models."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from covey.components.capability import Capability
from covey.components.component import Component
from covey.components.state import States
from covey.params import trained
from covey.types import Params

__all__ = [
    "Moments",
    "NoServerOptimizer",
    "ServerOptimizer",
    "ServerStep",
    "moment",
    "moved",
    "moves",
]

ServerStep = Callable[
    [tuple[Params, ...], tuple[Params, ...], States], tuple[tuple[Params, ...], States]
]
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
    ...         old = kept(states, Velocity).of
    ...         ...
    ...         return moved, keep(states, Velocity(of=new))

    The difference `model - aggregated` takes the place of a gradient (a pseudo-gradient).
    A step looks at nothing but the aggregated models and earlier steps: a guarantee of
    differential privacy for the aggregation covers it, as post-processing. It draws
    nothing, so that a round that is played again comes to the same bits.

    It sees all clusters' models: everybody's exposure counts in every cluster, unless a
    subclass's own `rules_out` is without `Capability.CLUSTER_ISOLATION`.

    References:
        Reddi et al., Adaptive Federated Optimization, 2021, Algorithm 1.
    """

    rules_out: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CLUSTER_ISOLATION, Capability.STORED_UPDATES}
    )

    @abstractmethod
    def step(
        self,
        models: tuple[Params, ...],
        aggregated: tuple[Params, ...],
        states: States,
    ) -> tuple[tuple[Params, ...], States]:
        """Return the next cluster models, and what all components keep.

        Args:
            models: of the clusters, before the round.
            aggregated: as the aggregation returns them. What no gradient moves, like
                BatchNorm's statistics, should be taken as it is here (`moved`).
            states: what all components keep; change one's own only (`kept`, `keep`).
        """


class NoServerOptimizer(ServerOptimizer):
    """The aggregated models are the next ones."""

    rules_out: ClassVar[frozenset[Capability]] = frozenset()

    def step(
        self,
        models: tuple[Params, ...],  # noqa: ARG002 - for others
        aggregated: tuple[Params, ...],
        states: States,
    ) -> tuple[tuple[Params, ...], States]:
        """Return the aggregated models."""
        return aggregated, states


def moves(model: Params, aggregated: Params) -> bool:
    """Say whether a round moved this cluster's model; else no momentum moves it either.

    A cluster that nobody trained, or that waited, has the same bits as before. It stays,
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
