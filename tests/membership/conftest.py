import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest
import torch

from covey import Examples, Params, Scored, ScoringJob, Target, TrainingJob
from covey.data.examples import Client

MakeClient = Callable[..., Client]
MakeTarget = Callable[..., Target]


class LookUp:
    """A fake engine: an example's input is its loss, and every answer is right."""

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        yield from (job.start for job in jobs)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        return [
            Scored(
                job.examples.inputs.flatten(1)[:, 0],
                job.examples.labels,
                torch.ones(len(job.examples)),
                torch.zeros(len(job.examples), 1),
            )
            for job in jobs
        ]


@pytest.fixture
def look_up() -> LookUp:
    return LookUp()


@pytest.fixture
def lossy() -> Callable[[Sequence[float] | np.ndarray], Examples]:
    """Examples with these losses, no two of which are copies."""
    numbers = itertools.count()

    def make(losses: Sequence[float] | np.ndarray) -> Examples:
        values = torch.tensor(np.asarray(losses), dtype=torch.float32)
        names = torch.tensor([float(next(numbers)) for _ in values])
        inputs = torch.stack([values, names], dim=1)
        return Examples(inputs, torch.zeros(len(values), dtype=torch.int64))

    return make


@pytest.fixture
def make_target() -> MakeTarget:
    def make(*members: Client, params: Params | None = None, at: int = 5) -> Target:
        return Target(0, params or {}, members, at)

    return make
