"""The engine to read: plain PyTorch, one client after another; the others' oracle."""

import copy
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from covey.engine.batches import batches
from covey.engine.descent import corrected, in_order, trainable
from covey.engine.dropout import check_dropout, seeded_dropout
from covey.engine.forward import model_outputs
from covey.engine.private import private_gradients
from covey.engine.protocol import Scored, ScoringJob, TrainingJob
from covey.engine.scoring import score_whole
from covey.engine.task import MULTICLASS, Task
from covey.types import Params

__all__ = ["ReferenceEngine"]


class ReferenceEngine:
    """Train clients one by one with an optimizer object.

    The module gives the architecture only: its own parameters are never used or changed.
    """

    def __init__(self, module: nn.Module, task: Task = MULTICLASS) -> None:
        check_dropout(module)
        self._module = module
        self._task = task

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        for job in jobs:
            yield self._train_one(job)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        return [
            score_whole(copy.deepcopy(self._module), job, self._task) for job in jobs
        ]

    def _train_one(self, job: TrainingJob) -> Params:
        module = copy.deepcopy(self._module)
        module.load_state_dict(job.start)
        module.train()
        weights, recipe = trainable(module), job.recipe
        values: list[Tensor] = [*weights.values()]
        start = [value.detach().clone() for value in values]
        memory = in_order(job, list(weights))
        optimizer = recipe.optimizer.make(values, recipe.learning_rate)
        take = _private if recipe.record_clip > 0 else _plain
        for _ in take(module, values, job, self._task):
            with torch.no_grad():
                extra = corrected(recipe.objective, values, start, memory)
            if extra is not None:
                _add(values, extra)
            if recipe.max_gradient_norm:
                nn.utils.clip_grad_norm_(values, recipe.max_gradient_norm)
            optimizer.step()
        return dict(module.state_dict())


def _add(weights: Sequence[Tensor], extra: Sequence[Tensor]) -> None:
    for value, more in zip(weights, extra, strict=True):
        value.grad = more if value.grad is None else value.grad + more


def _plain(
    module: nn.Module, weights: list[Tensor], job: TrainingJob, task: Task
) -> Iterator[None]:
    """Give every weight the gradient of a batch, batch after batch."""
    own_dropout, losses = seeded_dropout(module, job), job.recipe.loss.of(task)
    seen: list[Tensor] = []
    for batch in batches(job):
        with own_dropout:
            outputs = model_outputs(module, batch.inputs)
        for value in weights:
            value.grad = torch.zeros_like(value)
        loss = losses(outputs, batch.labels).mean()
        loss.backward()
        if job.on_losses:
            seen.append(loss.detach())
        yield
    if job.on_losses and seen:
        job.on_losses(torch.stack(seen))


def _private(
    module: nn.Module, weights: list[Tensor], job: TrainingJob, task: Task
) -> Iterator[None]:
    """Give every weight a gradient that tells little of each example."""
    for gradients in private_gradients(module, job, task):
        for value, gradient in zip(weights, gradients, strict=True):
            value.grad = gradient
        yield
