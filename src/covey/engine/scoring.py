"""Scoring in parts of bounded size: the same arithmetic for every engine."""

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from covey.data.examples import to_floats
from covey.engine.loss import nll_losses
from covey.engine.protocol import Scored, ScoringJob

__all__ = ["in_parts", "joined", "score_part", "score_whole"]

PART_SIZE = 100
"""Examples per forward pass: enough to fill a core, and memory stays bounded."""


def in_parts(job: ScoringJob) -> Iterator[ScoringJob]:
    """Cut a job into consecutive jobs of at most `PART_SIZE` examples."""
    for chosen in torch.arange(len(job.examples)).split(PART_SIZE):
        yield ScoringJob(job.params, job.examples.take(chosen))


def score_part(module: nn.Module, job: ScoringJob) -> Scored:
    """Return the scores of all examples at once; the module takes on the job's params."""
    module.load_state_dict(job.params)
    module.eval()
    with torch.no_grad():
        outputs = module(to_floats(job.examples.inputs))
        losses = nll_losses(outputs, job.examples.labels)
    return Scored(losses, outputs.argmax(dim=1), outputs.float().log_softmax(dim=1))


def joined(parts: Iterable[Scored]) -> Scored:
    """Undo `in_parts` on the scores."""
    scored = list(parts)
    return Scored(
        torch.cat([part.losses for part in scored]),
        torch.cat([part.predictions for part in scored]),
        torch.cat([part.log_probs for part in scored]),
    )


def score_whole(module: nn.Module, job: ScoringJob) -> Scored:
    """Score one job, part after part."""
    return joined(score_part(module, part) for part in in_parts(job))
