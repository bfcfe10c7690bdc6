"""Scoring in parts of bounded size: the same arithmetic for every engine."""

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from covey.data.examples import to_floats
from covey.engine.forward import model_outputs
from covey.engine.protocol import Scored, ScoringJob
from covey.engine.task import MULTICLASS, Labels, Outputs, Task

__all__ = [
    "concatenated",
    "num_parts",
    "score_part",
    "score_whole",
    "scored",
    "split_job",
]

PART_SIZE = 100
"""Examples per forward pass: enough to fill a core, and memory stays bounded."""


def split_job(job: ScoringJob) -> Iterator[ScoringJob]:
    """Cut a job into consecutive jobs of at most `PART_SIZE` examples."""
    for chosen in torch.arange(len(job.examples)).split(PART_SIZE):
        yield ScoringJob(job.params, job.examples.take(chosen))


def num_parts(job: ScoringJob) -> int:
    """Return how many parts `split_job` makes of a job; one, empty, of no examples."""
    return max(1, math.ceil(len(job.examples) / PART_SIZE))


def score_part(module: nn.Module, job: ScoringJob, task: Task = MULTICLASS) -> Scored:
    """Return the scores of all examples at once; the module takes on the job's params."""
    module.load_state_dict(job.params)
    module.eval()
    labels = job.examples.labels
    with torch.no_grad():
        return scored(
            model_outputs(module, to_floats(job.examples.inputs)), labels, task
        )


def scored(outputs: Outputs, labels: Labels, task: Task) -> Scored:
    """Return what a task makes of a model's outputs."""
    predictions = task.predictions(outputs)
    return Scored(
        losses=task.losses(outputs, labels),
        predictions=predictions,
        correct=task.correct(predictions, labels),
        log_probs=task.log_probs(outputs),
    )


def concatenated(parts: Iterable[Scored]) -> Scored:
    """Undo `split_job` on the scores."""
    scored = list(parts)
    return Scored(
        torch.cat([part.losses for part in scored]),
        torch.cat([part.predictions for part in scored]),
        _concatenated_if_known([part.correct for part in scored]),
        _concatenated_if_known([part.log_probs for part in scored]),
    )


def score_whole(module: nn.Module, job: ScoringJob, task: Task = MULTICLASS) -> Scored:
    """Score one job, part after part."""
    return concatenated(score_part(module, part, task) for part in split_job(job))


def _concatenated_if_known(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.cat(known) if known else None
