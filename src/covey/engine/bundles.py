"""Bundles of jobs: what is handed on at once, where handing on takes longer than a job."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from covey.engine.batches import num_steps
from covey.engine.protocol import TrainingJob
from covey.types import Params

__all__ = ["bundled", "num_parameters", "training_work"]

Job = TypeVar("Job")


def bundled(
    jobs: Iterable[Job], work_of: Callable[[Job], float], most: int, work: float
) -> Iterator[list[Job]]:
    """Yield the jobs in their order, several at once where they are soon done.

    Args:
        jobs: taken one by one; no job is taken before a bundle that is full is yielded.
        work_of: what a job takes.
        most: jobs in a bundle.
        work: of a bundle, together; what takes more goes alone.
    """
    bundle, together = list[Job](), 0.0
    for job in jobs:
        size = work_of(job)
        if bundle and (len(bundle) == most or together + size > work):
            yield bundle
            bundle, together = [], 0.0
        bundle.append(job)
        together += size
        if together > work:
            yield bundle
            bundle, together = [], 0.0
    if bundle:
        yield bundle


def training_work(job: TrainingJob) -> float:
    """Return parameters times the examples that are seen, each as often as it is."""
    seen = num_steps(len(job.examples), job.recipe) * job.recipe.batch_size
    return float(num_parameters(job.start) * seen)


def num_parameters(params: Params) -> int:
    """Return how many numbers a model has."""
    return sum(value.numel() for value in params.values())
