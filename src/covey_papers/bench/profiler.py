"""What training costs: images and seconds, counted where the engine is called."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from covey.engine import Engine, Scored, ScoringJob, TrainingJob, num_steps
from covey.types import Params

__all__ = ["Clock", "Cost", "Metered"]

Clock = Callable[[], float]
"""Seconds since some moment; of processor time, where others share the machine."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one part of a bench took.

    Attributes:
        images: gradients of single images that were computed.
        training: seconds inside `Engine.train`.
        seconds: seconds altogether, scoring and merging included.
    """

    images: int = 0
    training: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.images + other.images,
            self.training + other.training,
            self.seconds + other.seconds,
        )


class Metered:
    """An engine that counts what it is asked to train, and how long that takes."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._began = clock()
        self._images = 0
        self._training = 0.0
        self._seconds = 0.0

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        began = self._clock()
        for params in self._engine.train(map(self._counted, jobs)):
            self._training += self._clock() - began
            yield params
            began = self._clock()
        self._training += self._clock() - began

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        return self._engine.score(jobs)

    def __enter__(self) -> "Metered":
        self._began = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds += self._clock() - self._began

    @property
    def cost(self) -> Cost:
        """What was counted, with the seconds spent inside `with`."""
        return Cost(self._images, self._training, self._seconds)

    def _counted(self, job: TrainingJob) -> TrainingJob:
        recipe, n = job.recipe, len(job.examples)
        drawn = num_steps(n, recipe) * recipe.batch_size
        in_epochs = recipe.local_steps == recipe.least_steps == 0
        self._images += recipe.local_epochs * n if in_epochs else drawn
        return job
