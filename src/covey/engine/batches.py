"""The mini-batches of a training job, drawn beforehand: every engine sees the same."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from covey.data.examples import Examples, to_floats
from covey.engine.protocol import Recipe, TrainingJob

__all__ = ["batch_indices", "batches", "job_indices", "num_steps", "used_examples"]


def num_steps(num_examples: int, recipe: Recipe) -> int:
    """Return how many gradient steps a client with so many examples takes.

    ceil(n / batch_size) per epoch, without a short last one if `drop_last`, or
    `local_steps`, and `least_steps` at the least; none without examples.
    """
    if num_examples == 0:
        return 0
    epoch_steps = math.ceil(used_examples(num_examples, recipe) / recipe.batch_size)
    steps = recipe.local_steps or recipe.local_epochs * epoch_steps
    return max(steps, recipe.least_steps)


def used_examples(num_examples: int, recipe: Recipe) -> int:
    """Return how many examples an epoch sees: where `drop_last`, in whole batches only.

    The only batch stays, however short. DP-SGD draws batches, and has no last one.
    """
    whole = num_examples - num_examples % recipe.batch_size
    drops = recipe.drop_last and not recipe.record_clip > 0
    return whole if drops and whole else num_examples


def batch_indices(
    num_examples: int, recipe: Recipe, generator: np.random.Generator
) -> list[Int[Tensor, " batch"]]:
    """Return the positions of each mini-batch's examples, step by step.

    Every epoch is a fresh permutation cut into pieces of `batch_size`, of which the last
    may be short, or is left out if `drop_last`. A number of steps takes that many pieces
    of an endless row of epochs. Without examples there are no batches.
    """
    used = used_examples(num_examples, recipe)
    pieces = itertools.chain.from_iterable(
        torch.from_numpy(generator.permutation(num_examples)[:used]).split(
            recipe.batch_size
        )
        for _ in itertools.count()
    )
    return list(itertools.islice(pieces, num_steps(num_examples, recipe)))


def job_indices(job: TrainingJob) -> list[Int[Tensor, " batch"]]:
    """Return the job's own `batch_indices`, from its stream `order`."""
    order = job.streams.at("order").generator()
    return batch_indices(len(job.examples), job.recipe, order)


def batches(job: TrainingJob) -> Iterator[Examples]:
    """Yield the job's mini-batches, converted to what a model sees."""
    for chosen in job_indices(job):
        batch = job.examples.take(chosen)
        yield Examples(to_floats(batch.inputs), batch.labels)
