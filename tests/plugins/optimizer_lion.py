"""An optimizer of a user's own: Lion, which steps by signs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from covey import Optimizer


class LionSteps(torch.optim.Optimizer):
    """w -= lr sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g.

    References:
        Chen et al., Symbolic Discovery of Optimization Algorithms, 2023.
    """

    def __init__(
        self, params: Sequence[Tensor], lr: float, b1: float = 0.9, b2: float = 0.99
    ) -> None:
        super().__init__(params, {"lr": lr, "b1": b1, "b2": b2})

    @torch.no_grad()
    def step(self, closure: object = None) -> Any:
        for group in self.param_groups:
            for value in group["params"]:
                memory = self.state[value]
                m = memory.get("m", torch.zeros_like(value))
                along = m.lerp(value.grad, 1 - group["b1"]).sign()
                value.sub_(along, alpha=group["lr"])
                memory["m"] = m.lerp(value.grad, 1 - group["b2"])


class Lion(Optimizer):
    """The same as a component, so that the vmap engine may run it on many clients."""

    elementwise = True

    b1: float = 0.9

    def make(self, weights: Sequence[Tensor], learning_rate: float) -> LionSteps:
        return LionSteps(weights, learning_rate, b1=self.b1)
