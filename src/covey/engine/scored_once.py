"""Several figures that rest on the same losses, which are found once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from covey.engine.protocol import Engine, Scored, ScoringJob, TrainingJob
from covey.types import Params

__all__ = ["ScoredOnce"]

Key = tuple[int, int]


class ScoredOnce:
    """An engine that scores a model on the same examples once, however often it is asked.

    The same are the same objects. It keeps what it found and was asked about, so it is for
    one stage of a run; log-probabilities, which are many, it neither keeps nor returns.

    Args:
        engine: scores what is new, all of it at once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found: dict[Key, tuple[ScoringJob, Scored]] = {}

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        return self._engine.train(jobs)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        keys = [(id(job.params), id(job.examples)) for job in jobs]
        asked = dict(zip(keys, jobs, strict=True))
        new = {key: job for key, job in asked.items() if key not in self._found}
        scored = self._engine.score(list(new.values()))
        for (key, job), found in zip(new.items(), scored, strict=True):
            # the job beside it keeps both ids taken
            self._found[key] = job, replace(found, log_probs=None)
        return [self._found[key][1] for key in keys]
