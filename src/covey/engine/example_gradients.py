"""Gradients of single examples, each clipped: DP-SGD, and a round under individual noise.

    clip(v, C) = v min(1, C / ||v||), with the L2 norm over all parameters together

Under individual noise a client makes one step a round, by the sum over all its examples

    s_i = sum_r clip(grad f(theta, x_r), C_i)

A sum, and not a mean: one example more or less moves it by C_i at most, whatever else the
client holds. The noise is on the sum over all clients (`covey.aggregation.mean`).

References:
    Abadi et al., Deep Learning with Differential Privacy, 2016, Algorithm 1.
    Boenisch, Muehl, Dziedzic, Rinberg, Papernot, Have it your way: Individualized Privacy
    Assignment for DP-SGD, 2023, "scale": a clip for each.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from covey.base.names import Params
from covey.base.rng import with_noise
from covey.data.examples import Examples, to_floats
from covey.engine.descent import trainable
from covey.engine.dropout import refuse_dropout
from covey.engine.protocol import TrainingJob, num_steps
from covey.engine.recipe import MULTICLASS, PerExample, Recipe, Task
from covey.models.build import model_outputs, refuse_batch_norm
from covey.models.linear_head import HeadAlone

FEATURE = "Clipping the gradient of every example (privacy.record_clip)"

MEMORY = 2**22
"""Numbers that gradients of single examples take at a time: with twice as many a linear model of
1,800 features is three times as slow (`python -m benchmarks chunks`)."""

MOST_AT_ONCE = 500
"""Examples whose gradients are computed at a time, however small the model."""


def check_private(module: nn.Module) -> None:
    """Refuse layers with which there is no gradient of one example alone.

    Raises:
        ModelError: naming the layer: one that mixes examples, or dropout.
    """
    refuse_batch_norm(module, FEATURE)
    refuse_dropout(module, FEATURE, "remove it.")


def sampling_rate(num_examples: int, recipe: Recipe) -> float:
    """Return each example's chance to be in a batch: q = min(1, batch_size / n)."""
    return min(1.0, recipe.batch_size / num_examples)


def private_gradients(
    module: nn.Module, job: TrainingJob, task: Task = MULTICLASS
) -> Iterator[list[Tensor]]:
    """Yield one noised gradient per step of DP-SGD; the caller descends before the next.

    g = (1/L) (sum_{x in batch} clip(grad f(theta, x), C) + N(0, (z C)^2 I))

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
        total = _sum_of_parts(module, batch, clip, losses)
        if std > 0:
            total = [
                with_noise(v, hidden.normal(0.0, std, tuple(v.shape)), std, hidden) for v in total
            ]
        yield [value / (q * n) for value in total]


def gradient_sum(module: nn.Module, job: TrainingJob, task: Task = MULTICLASS) -> list[Tensor]:
    """Return sum_r clip(grad f(theta, x_r), C) over all of a client's examples.

    theta are the module's parameters, and C is `record_clip`.
    """
    check_private(module)
    return _sum_of_parts(module, job.examples, job.recipe.record_clip, job.recipe.loss.of(task))


def _sum_of_parts(
    module: nn.Module, examples: Examples, clip: float, losses: PerExample
) -> list[Tensor]:
    """Return the same sum, part after part, so that the memory is bounded."""
    total = [torch.zeros_like(value.detach()) for value in trainable(module).values()]
    for part in _parts(module, examples):
        for value, more in zip(total, clipped_sum(module, part, clip, losses), strict=True):
            value.add_(more)
    return total


def gradient_norms(
    module: nn.Module, job: TrainingJob, task: Task = MULTICLASS
) -> Float[Tensor, " examples"]:
    """Return |grad f(theta, x)| of each of a client's examples, before it is clipped.

    From these follow the bounds on what an attacker learns of the examples.
    """
    losses = job.recipe.loss.of(task)
    parts = (example_gradients(module, part, losses) for part in _parts(module, job.examples))
    return torch.cat([torch.zeros(0), *map(norms_of, parts)])


def _parts(module: nn.Module, examples: Examples) -> Iterator[Examples]:
    """Cut examples into parts whose gradients fit the memory."""
    for part in torch.arange(len(examples)).split(part_size(module)):
        yield examples.take(part)


def part_size(module: nn.Module) -> int:
    """Return how many examples have their gradients at a time."""
    numbers = sum(value.numel() for value in trainable(module).values())
    return max(1, min(MOST_AT_ONCE, MEMORY // numbers))


def clipped_sum(
    module: nn.Module, batch: Examples, clip: float, losses: PerExample = MULTICLASS.losses
) -> list[Tensor]:
    """Return the sum over the examples x of clip(grad f(theta, x), C), all at once."""
    if isinstance(module, HeadAlone):
        theta, phi = weights_of(module.state_dict()), batch.inputs.float() / module.unit
        residuals = residuals_of(theta, phi, batch.labels, module.scale, losses)
        total = clipped_product(residuals, phi, clip)
        return [total[:, :-1], total[:, -1]]
    gradients = example_gradients(module, batch, losses)
    shares = clip_shares(norms_of(gradients), clip)
    return [torch.tensordot(shares, value, dims=1) for value in gradients]


def example_gradients(
    module: nn.Module, batch: Examples, losses: PerExample = MULTICLASS.losses
) -> list[Tensor]:
    """Return the gradient of each example's loss, stacked, for every trained parameter.

    What is not finite in a gradient counts as 0: nothing else would bound it.
    """
    weights = {name: value.detach() for name, value in trainable(module).items()}
    if len(batch) == 0:  # vmap needs somebody
        return [value.new_zeros(0, *value.shape) for value in weights.values()]

    def loss(
        weights: Params, inputs: Shaped[Tensor, "..."], label: Shaped[Tensor, "*label"]
    ) -> Float[Tensor, ""]:
        call = partial(functional_call, module, dict(weights))
        outputs = model_outputs(module, inputs[None], call)
        return losses(outputs, label[None]).sum()

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    gradients = per_example(weights, to_floats(batch.inputs), batch.labels)
    return [value.nan_to_num(0.0, 0.0, 0.0) for value in gradients.values()]


def weights_of(head: Params) -> Float[Tensor, "classes d"]:
    """Return the weights of a linear head, its bias last."""
    return torch.cat([head["head.weight"], head["head.bias"][:, None]], dim=1).detach()


def residuals_of(
    theta: Float[Tensor, "classes d"],
    phi: Float[Tensor, "rows d"],
    labels: Shaped[Tensor, "rows *label"],
    scale: float,
    losses: PerExample,
) -> Float[Tensor, "rows classes"]:
    """Return r = scale df/ds at the scores s = theta phi: an example's gradient is r phi^T.

    What is not finite counts as 0, as of other models (`example_gradients`).
    """
    scores = (phi @ theta.T).requires_grad_()
    (residuals,) = torch.autograd.grad(losses(scale * scores, labels).sum(), scores)
    return residuals.nan_to_num(0.0, 0.0, 0.0)


def clipped_product(
    residuals: Float[Tensor, "rows classes"], phi: Float[Tensor, "rows d"], clip: float
) -> Float[Tensor, "classes d"]:
    """Return sum_r clip(r phi^T, C) = sum_r min(1, C / (|r| |phi|)) r phi^T."""
    norms = residuals.norm(dim=1) * phi.norm(dim=1)
    return (clip_shares(norms, clip)[:, None] * residuals).T @ phi


def norms_of(gradients: Sequence[Tensor]) -> Float[Tensor, " examples"]:
    """Return the L2 norm of each example's gradient, over all parameters together."""
    return torch.stack([value.flatten(1).norm(dim=1) for value in gradients]).norm(dim=0)


def clip_shares(norms: Float[Tensor, " examples"], clip: float) -> Float[Tensor, " examples"]:
    """Return min(1, C / ||v||) of norms ||v||: what is left of each gradient; 0 where C is 0."""
    return (clip / norms).clamp(max=1) if clip else torch.zeros_like(norms)
