"""Training that puts down the loss of every example as it goes; none is computed twice."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covey.engine.batches import job_indices
from covey.engine.losses import Loss, PerExample
from covey.engine.protocol import TrainingJob
from covey.engine.task import Labels, Losses, Outputs, Task

__all__ = ["PutDown", "RecordedJob", "without_recording"]

PutDown = Callable[[Tensor], object]
"""Takes the losses of a batch's examples."""


class _Recorded(Loss):
    """Another loss, of which every batch's values are put down."""

    loss: Loss
    put_down: PutDown

    def of(self, task: Task) -> PerExample:
        """Return the same losses; what is put down takes no part in any gradient."""
        losses = self.loss.of(task)

        def recorded(outputs: Outputs, labels: Labels) -> Losses:
            found = losses(outputs, labels)
            self.put_down(found.detach())
            return found

        return recorded


@dataclass(frozen=True, slots=True, eq=False)
class RecordedJob:
    """A training job whose losses are known when it is done.

    For engines that train a client by itself, batch after batch: `vmap` and DP-SGD do not.
    """

    job: TrainingJob
    batches: list[Losses] = field(default_factory=list[Tensor])

    @property
    def recorded(self) -> TrainingJob:
        """The job to train instead; it ends at the same model, to the bit."""
        recipe = self.job.recipe
        loss = _Recorded(loss=recipe.loss, put_down=self.batches.append)
        return replace(self.job, recipe=replace(recipe, loss=loss))

    def first_losses(self) -> Float[Tensor, " examples"]:
        """Return each example's loss when it was first drawn; NaN: it never was.

        Later on, the client's own model has learnt it in this very training.
        """
        found = torch.full((len(self.job.examples),), torch.nan)
        for chosen, losses in zip(job_indices(self.job), self.batches, strict=True):
            found[chosen] = torch.where(
                found[chosen].isnan(), losses.float(), found[chosen]
            )
        return found


def without_recording(job: TrainingJob) -> tuple[TrainingJob, PutDown | None]:
    """Return the job that is recorded, and what takes its losses; None: it is not.

    For engines that train in another process: what is put down there is lost here.
    """
    recipe, loss = job.recipe, job.recipe.loss
    if not isinstance(loss, _Recorded):
        return job, None
    return replace(job, recipe=replace(recipe, loss=loss.loss)), loss.put_down
