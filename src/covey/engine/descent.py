"""What happens to a step's gradient on its way to the weights, DP-SGD included.

References:
    Abadi et al., Deep Learning with Differential Privacy, 2016, Algorithm 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import (
    Tensor,
    _foreach_add,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_mul,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_norm,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)
from torch.func import functional_call, grad, vmap

from covey.base.errors import ConfigError, blamed
from covey.base.names import Params
from covey.base.rng import with_noise
from covey.data.examples import Examples, to_floats
from covey.engine.dropout import refuse_dropout
from covey.engine.optimizers import Step, Tensors
from covey.engine.protocol import TrainingJob, num_steps
from covey.engine.recipe import MULTICLASS, Objective, PerExample, Recipe, Task
from covey.models.build import model_outputs, refuse_batch_norm

Memory = Mapping[str, Sequence[Tensor]]
Clip = Callable[[Tensors, float], Tensors]

TINY = 1e-6
"""Added to a norm that is divided by, as torch does."""


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name and in the module's order."""
    return {n: value for n, value in module.named_parameters() if value.requires_grad}


def in_order(job: TrainingJob, names: Sequence[str]) -> Memory:
    """Return a job's memory as an objective looks at it."""
    return {key: _tensors(key, kept, names) for key, kept in job.memory.items()}


def _tensors(key: str, kept: Params, names: Sequence[str]) -> list[Tensor]:
    if missing := [name for name in names if name not in kept]:
        raise ConfigError(
            f"What an objective remembers as {key!r} must have a tensor for every "
            f"trained parameter, found none for {missing[0]}. Keep all names of the model."
        )
    return [kept[name] for name in names]


def reshaping(
    step: Step, recipe: Recipe, weights: Sequence[Tensor], memory: Memory, clip: Clip | None = None
) -> Step:
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
    with blamed(ConfigError, f"The objective {name}", "Correct its correction."):
        correction: Any = objective.correction(weights, start, memory)
        extra = None if correction is None else list(correction)
    if extra is None:
        return None
    shapes = [getattr(each, "shape", None) for each in extra]
    if shapes != [value.shape for value in weights]:
        raise ConfigError(
            f"The objective {name} must return one tensor for each of the weights, in their "
            f"shapes, found {len(shapes)} for {len(weights)}, or other shapes. Correct its "
            f"correction."
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


FEATURE = "Clipping the gradient of every example (privacy.record_clip)"


def check_private(module: nn.Module) -> None:
    """Refuse layers with which there is no gradient of one example alone.

    Raises:
        ModelError: naming the layer: one that mixes examples, or dropout.
    """
    refuse_batch_norm(module, FEATURE)
    refuse_dropout(module, FEATURE, "Remove it.")


def sampling_rate(num_examples: int, recipe: Recipe) -> float:
    """Return each example's chance to be in a batch: q = min(1, batch_size / n)."""
    return min(1.0, recipe.batch_size / num_examples)


def private_gradients(
    module: nn.Module, job: TrainingJob, task: Task = MULTICLASS
) -> Iterator[list[Tensor]]:
    """Yield one noised gradient per step; the caller descends before it takes the next.

    g = (1/L) (sum_{x in batch} clip_C(grad f(theta, x)) + N(0, (z C)^2 I))

    C is `record_clip` and z `record_noise`; theta are the module's parameters when g is
    taken. Each of the n examples is in the batch with chance q = min(1, batch_size / n),
    by a coin of its own at every step, and L = q n is the batch size to expect. A batch
    may be empty: noise alone is added then. Coins and noise are hidden draws.

    Yields:
        g, a tensor for each of the module's parameters that require gradients.
    """
    check_private(module)
    examples, recipe = job.examples, job.recipe
    hidden = job.streams.at("private steps").draws()
    n, clip, losses = len(examples), recipe.record_clip, recipe.loss.of(task)
    std = recipe.record_noise * clip
    for _ in range(num_steps(n, recipe)):
        q = sampling_rate(n, recipe)
        (drawn,) = np.nonzero(hidden.random((n,)) < q)
        batch = examples.take(torch.from_numpy(drawn))
        total = clipped_sum(module, batch, clip, losses)
        if std > 0:
            total = [
                with_noise(v, hidden.normal(0.0, std, tuple(v.shape)), std, hidden) for v in total
            ]
        yield [value / (q * n) for value in total]


def clipped_sum(
    module: nn.Module, batch: Examples, clip: float, losses: PerExample = MULTICLASS.losses
) -> list[Tensor]:
    """Return the sum over the examples x of clip_C(grad f(theta, x)).

    clip_C(v) = v min(1, C / ||v||), with the L2 norm over all parameters together. What is
    not finite in a gradient counts as 0: nothing else would bound it.
    """
    weights = {name: value.detach() for name, value in trainable(module).items()}
    if len(batch) == 0:  # vmap needs somebody
        return [torch.zeros_like(value) for value in weights.values()]

    def loss(
        weights: Params, inputs: Shaped[Tensor, "..."], label: Shaped[Tensor, "*label"]
    ) -> Float[Tensor, ""]:
        call = partial(functional_call, module, dict(weights))
        outputs = model_outputs(module, inputs[None], call)
        return losses(outputs, label[None]).sum()

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    sums = per_example(weights, to_floats(batch.inputs), batch.labels)
    gradients = [value.nan_to_num(0.0, 0.0, 0.0) for value in sums.values()]
    norms = torch.stack([value.flatten(1).norm(dim=1) for value in gradients]).norm(dim=0)
    shares = (clip / norms).clamp(max=1)
    return [torch.tensordot(shares, value, dims=1) for value in gradients]
