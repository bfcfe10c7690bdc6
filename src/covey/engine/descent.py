"""What happens to a step's gradient on its way to the weights: objectives, and a largest norm."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import (
    Tensor,
    _foreach_add,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_mul,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_norm,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from covey.base.errors import ConfigError, blamed
from covey.base.names import Params
from covey.engine.optimizers import StepFunction, Tensors
from covey.engine.protocol import TrainingJob
from covey.engine.recipe import Objective, Recipe

Memory = Mapping[str, Sequence[Tensor]]
Clip = Callable[[Tensors, float], Tensors]

TINY = 1e-6
"""Added to a norm that is divided by, as torch does."""


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name and in the module's order."""
    return {n: value for n, value in module.named_parameters() if value.requires_grad}


def in_order(job: TrainingJob, names: Sequence[str]) -> Memory:
    """Return a job's memory as an objective looks at it."""
    return {key: _tensors(key, remembered, names) for key, remembered in job.memory.items()}


def _tensors(key: str, remembered: Params, names: Sequence[str]) -> list[Tensor]:
    if missing := [name for name in names if name not in remembered]:
        raise ConfigError(
            f"An objective's {key!r} must have a tensor per trained parameter, found none for "
            f"{missing[0]}: keep all names of the model."
        )
    return [remembered[name] for name in names]


def reshaping(
    step: StepFunction,
    recipe: Recipe,
    weights: Sequence[Tensor],
    memory: Memory,
    clip: Clip | None = None,
) -> StepFunction:
    """Return a step that takes the objective and the largest norm into account.

    The step itself where the recipe has neither; `weights` are those of the start.
    """
    objective, norm = recipe.objective, recipe.max_gradient_norm
    if not objective.corrects and not norm:
        return step
    start = [value.detach().clone() for value in weights]
    scaled = clip or clipped

    @torch.no_grad()
    def reshaped(gradients: Tensors) -> None:
        extra = corrected(objective, weights, start, memory)
        if extra is not None:
            gradients = _foreach_add(gradients, extra)
        step(scaled(gradients, norm) if norm else gradients)

    return reshaped


def corrected(
    objective: Objective, weights: Sequence[Tensor], start: Sequence[Tensor], memory: Memory
) -> list[Tensor] | None:
    """Return what an objective adds to a step's gradient.

    Raises:
        ConfigError: it raised, or does not fit the weights.
    """
    name = type(objective).__name__
    with blamed(ConfigError, f"The objective {name}", "correct its correction."):
        correction: Any = objective.correction(weights, start, memory)
        extra = None if correction is None else list(correction)
    if extra is None:
        return None
    shapes = [getattr(value, "shape", None) for value in extra]
    if shapes != [value.shape for value in weights]:
        raise ConfigError(
            f"The objective {name} must return {len(weights)} tensors in the weights' shapes, "
            f"found {len(shapes)}, or other shapes: correct its correction."
        )
    return extra


def clipped(gradients: Tensors, largest: float) -> Tensors:
    """Return the gradients, scaled down to a norm, as torch's `clip_grad_norm_` does.

    g min(1, C / (||g|| + 1e-6)), with the L2 norm over all tensors together
    """
    norm = torch.stack(list(_foreach_norm(gradients))).norm()
    return _foreach_mul(gradients, (largest / (norm + TINY)).clamp(max=1))


def clipped_apart(gradients: Tensors, largest: float) -> Tensors:
    """Return the gradients of stacked clients, each client's scaled by its own norm."""
    norms = torch.stack([value.flatten(1).norm(dim=1) for value in gradients]).norm(dim=0)
    shares = (largest / (norms + TINY)).clamp(max=1)
    return [value * shares.view(-1, *(1,) * (value.dim() - 1)) for value in gradients]
