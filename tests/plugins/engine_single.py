"""An engine of a user's own: covey's reference, which counts what it is asked."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field
from torch import nn

import covey
from covey import Engine, Params, ReferenceEngine, Scored, ScoringJob, Task, TrainingJob


class Counting:
    """An engine around another."""

    trained = 0

    def __init__(self, inner: Engine, most: int) -> None:
        self.inner, self.most = inner, most

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        for params in self.inner.train(jobs):
            type(self).trained += 1
            yield params

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        return [
            each
            for start in range(0, len(jobs), self.most)
            for each in self.inner.score(jobs[start : start + self.most])
        ]


class Single(covey.EngineFactory):
    """At most so many scoring jobs at a time."""

    most: int = Field(default=4, gt=0)

    def build(self, module: nn.Module, task: Task, **needs: Any) -> Engine:
        return Counting(ReferenceEngine(module, task), self.most)
