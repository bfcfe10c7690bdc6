"""The engine to read: plain PyTorch, one client after another; the others' oracle."""

import copy
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from covey.engine.batches import batches
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
        optimizer = torch.optim.SGD(
            module.parameters(),
            lr=job.recipe.learning_rate,
            momentum=job.recipe.momentum,
        )
        descend = _descend_privately if job.recipe.record_clip > 0 else _descend
        descend(module, optimizer, job, self._task)
        return dict(module.state_dict())


def _descend(
    module: nn.Module, optimizer: torch.optim.Optimizer, job: TrainingJob, task: Task
) -> None:
    own_dropout = seeded_dropout(module, job)
    for batch in batches(job):
        optimizer.zero_grad()
        with own_dropout:
            outputs = model_outputs(module, batch.inputs)
        task.losses(outputs, batch.labels).mean().backward()
        optimizer.step()


def _descend_privately(
    module: nn.Module, optimizer: torch.optim.Optimizer, job: TrainingJob, task: Task
) -> None:
    weights = [value for value in module.parameters() if value.requires_grad]
    for gradients in private_gradients(module, job, task):
        for value, gradient in zip(weights, gradients, strict=True):
            value.grad = gradient
        optimizer.step()
