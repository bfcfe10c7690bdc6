"""FedAvgM of a user's own, with Nesterov's look ahead (Hsu, Qi, Brown, 2019)."""

from collections.abc import Mapping

import torch

from covey import ComponentState, ServerOptimizer, States, get_state, with_state

Params = Mapping[str, torch.Tensor]


class Velocity(ComponentState):
    """Per cluster, and parameter."""

    of: tuple[Params, ...] = ()


class Nesterov(ServerOptimizer):
    """v <- beta v + g, w <- w - (g + beta v), with g = model - aggregated."""

    beta: float = 0.9

    def step(
        self, models: tuple[Params, ...], aggregated: tuple[Params, ...], states: States
    ) -> tuple[tuple[Params, ...], States]:
        before = get_state(states, Velocity).of or ({},) * len(models)
        moved = [self._moved(*model) for model in zip(models, aggregated, before, strict=True)]
        velocity = Velocity(of=tuple(v for _, v in moved))
        return tuple(model for model, _ in moved), with_state(states, velocity)

    def _moved(self, model: Params, target: Params, v: Params) -> tuple[Params, Params]:
        if all(torch.equal(model[name], target[name]) for name in model):
            return target, v  # nobody trained it
        slope = {
            name: value - target[name]
            for name, value in model.items()
            if value.is_floating_point() and "running_" not in name
        }
        v = {k: self.beta * v[k] + g if k in v else g for k, g in slope.items()}
        step = {k: model[k] - (g + self.beta * v[k]) for k, g in slope.items()}
        return {**target, **step}, v
