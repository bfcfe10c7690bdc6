"""Objectives: what clients minimise beside their loss."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import (
    Tensor,
    _foreach_mul_,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_sub,  # pyright: ignore[reportPrivateImportUsage]
)

from covey.components.section import NotNegative
from covey.engine.recipe import Objective

__all__ = ["OwnObjective", "Proximal"]


class Proximal(Objective):
    """Stay near the model that the round began with: FedProx.

    f(w) + mu / 2 ||w - start||^2, so that mu (w - start) is added to every gradient

    References:
        Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, Federated Optimization in
        Heterogeneous Networks, 2020.
    """

    elementwise = True

    mu: NotNegative = 0.01

    def correction(
        self,
        weights: Sequence[Tensor],
        start: Sequence[Tensor],
        memory: Mapping[str, Sequence[Tensor]],  # noqa: ARG002 - the others' contract
    ) -> Sequence[Tensor] | None:
        """Return mu (w - start); nothing where mu is 0, to the bit."""
        if self.mu == 0:
            return None
        away = _foreach_sub(list(weights), list(start))
        _foreach_mul_(away, self.mu)
        return away


class OwnObjective(Objective):
    """A user's function of weights, start and memory."""

    function: Callable[..., Any]

    def correction(
        self,
        weights: Sequence[Tensor],
        start: Sequence[Tensor],
        memory: Mapping[str, Sequence[Tensor]],
    ) -> Sequence[Tensor] | None:
        """Return what the function says."""
        return self.function(weights, start, memory)
