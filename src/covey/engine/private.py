"""DP-SGD: gradients to which each example adds little, under noise that hides it.

References:
    Abadi et al., Deep Learning with Differential Privacy, 2016, Algorithm 1.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from covey.data.examples import Examples, to_floats
from covey.engine.batches import num_steps
from covey.engine.dropout import refuse_dropout
from covey.engine.forward import model_outputs
from covey.engine.losses import PerExample
from covey.engine.protocol import Recipe, TrainingJob
from covey.engine.task import MULTICLASS, Task
from covey.models import refuse_batch_norm
from covey.rng import with_noise
from covey.types import Params

__all__ = ["check_private", "clipped_sum", "private_gradients", "sampling_rate"]

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
                with_noise(v, hidden.normal(0.0, std, tuple(v.shape)), std, hidden)
                for v in total
            ]
        yield [value / (q * n) for value in total]


def clipped_sum(
    module: nn.Module,
    batch: Examples,
    clip: float,
    losses: PerExample = MULTICLASS.losses,
) -> list[Tensor]:
    """Return the sum over the examples x of clip_C(grad f(theta, x)).

    clip_C(v) = v min(1, C / ||v||), with the L2 norm over all parameters together. What is
    not finite in a gradient counts as 0: nothing else would bound it.
    """
    weights = {
        name: value.detach()
        for name, value in module.named_parameters()
        if value.requires_grad
    }
    if len(batch) == 0:  # vmap needs somebody
        return [torch.zeros_like(value) for value in weights.values()]

    def loss(
        weights: Params, inputs: Shaped[Tensor, "..."], label: Shaped[Tensor, "*label"]
    ) -> Float[Tensor, ""]:
        call = partial(functional_call, module, dict(weights))
        outputs = model_outputs(module, inputs[None], call)
        return losses(outputs, label[None]).sum()

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    found = per_example(weights, to_floats(batch.inputs), batch.labels)
    gradients = [value.nan_to_num(0.0, 0.0, 0.0) for value in found.values()]
    norms = torch.stack([value.flatten(1).norm(dim=1) for value in gradients]).norm(
        dim=0
    )
    shares = (clip / norms).clamp(max=1)
    return [torch.tensordot(shares, value, dims=1) for value in gradients]
