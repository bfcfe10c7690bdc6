"""The engine for CPUs: clients in parallel threads, one core each.

Small models gain nothing from several cores inside one operation, so every thread runs
its client alone. A client's result does not depend on the number of threads, to the bit.
"""

import copy
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain, islice
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from covey.data.examples import Examples
from covey.engine.batches import batches
from covey.engine.bundles import bundled, training_work
from covey.engine.descent import in_order, reshaping
from covey.engine.dropout import check_dropout
from covey.engine.forward import model_outputs
from covey.engine.losses import PerExample
from covey.engine.private import private_gradients
from covey.engine.protocol import Scored, ScoringJob, TrainingJob
from covey.engine.reused_model import ReusedModel
from covey.engine.scoring import concatenated, num_parts, score_part, split_job
from covey.engine.task import MULTICLASS, Task
from covey.portable import keep_freed_memory
from covey.types import Params

__all__ = ["ParallelEngine", "Precision"]

Job = TypeVar("Job")
Result = TypeVar("Result")

PARTS_IN_FLIGHT = 8
"""Scoring jobs per thread that wait or are done: small, so that none of them idles."""

BUNDLE = 32
"""Training jobs that go to a thread at once, at most."""

BUNDLED_WORK = 1e6
"""Parameters times examples of a bundle: a millisecond or so. What is more goes alone."""

LARGE_MODEL = 16 * 2**20
"""From so many bytes on, one trained model waits for its turn, and not one per thread."""

KEPT_MEMORY, LARGEST_KEPT = 64 * 2**20, 32 * 2**20
"""Bytes that a thread keeps, once freed, for its next step, and of the largest tensor."""

Precision = Literal["float32", "bfloat16"]
"""What a step of plain SGD multiplies in; DP-SGD, parameters and scores: float32."""


class ParallelEngine:
    """Train and score on `workers` threads with one intra-op thread each.

    The module gives the architecture only. Jobs are taken from their iterator as
    threads become free: at most `2 * workers` are in flight, or as many bundles of jobs
    that are next to nothing; `workers + 1` where models are large.

    Attributes:
        hands_over: whether nobody but the taker holds a model that `train` yields.
    """

    hands_over: ClassVar[bool] = True

    def __init__(
        self,
        module: nn.Module,
        workers: int = 1,
        precision: Precision = "float32",
        task: Task = MULTICLASS,
    ) -> None:
        check_dropout(module)
        keep_freed_memory(KEPT_MEMORY, LARGEST_KEPT)
        self._module = module
        self._task = task
        self._workers = workers
        self._precision = precision
        self._thread_local = threading.local()
        # The threads live as long as the engine: each new one would get a memory arena
        # of its own, and a run of many rounds would keep them all.
        self._pool = ThreadPoolExecutor(workers, initializer=self._set_up_thread)

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        bundles = _bundles(jobs)
        if (first := next(bundles, None)) is None:
            return
        ahead = 1 if _model_bytes(first[0]) > LARGE_MODEL else self._workers
        results = self._results(
            self._train_bundle, chain([first], bundles), self._workers + ahead
        )
        # an error keeps this frame alive, and would leave the caller with one thread
        with closing(results):
            for trained, error in results:
                trained.reverse()
                while trained:  # whoever takes a model is the only one to hold it
                    yield trained.pop()
                if error is not None:
                    raise error

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        parts = (part for job in jobs for part in split_job(job))
        scored = self._results(self._score_part, parts, PARTS_IN_FLIGHT * self._workers)
        return [concatenated(islice(scored, num_parts(job))) for job in jobs]

    def _results(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], max_in_flight: int
    ) -> Generator[Result]:
        """Yield each job's result in order, with at most `max_in_flight` in flight.

        A job holds a copy of its examples: all at once, they would fill the memory.
        """
        in_flight: deque[Future[Result]] = deque()
        with _one_intra_op_thread():
            try:
                for job in jobs:
                    in_flight.append(self._pool.submit(work, job))
                    if len(in_flight) == max_in_flight:
                        yield in_flight.popleft().result()
                while in_flight:
                    yield in_flight.popleft().result()
            finally:
                for abandoned in in_flight:
                    abandoned.cancel()

    def _set_up_thread(self) -> None:
        # The setting binds this thread and every thread born later, but not the caller's.
        torch.set_num_threads(1)
        # Convolutions follow the layout of their weights, and are faster in this one.
        own = copy.deepcopy(self._module).to(
            memory_format=torch.channels_last  # pyright: ignore[reportCallIssue]
        )
        self._thread_local.model = ReusedModel(own)

    def _score_part(self, job: ScoringJob) -> Scored:
        return score_part(self._thread_local.model.module, job, self._task)

    def _train_bundle(
        self, jobs: Sequence[TrainingJob]
    ) -> tuple[list[Params], Exception | None]:
        """Return what was trained, and what stopped it."""
        trained: list[Params] = []
        for job in jobs:
            try:
                trained.append(self._train_one(job))
            except Exception as error:
                return trained, error
        return trained, None

    def _train_one(self, job: TrainingJob) -> Params:
        model: ReusedModel = self._thread_local.model
        model.begin_at(job.start)
        recipe, weights = job.recipe, model.weights
        step = recipe.optimizer.begin(weights, recipe.learning_rate)
        step = reshaping(step, recipe, weights, in_order(job, model.names))
        if recipe.record_clip > 0:
            steps = private_gradients(model.module, job, self._task)
        else:
            steps = self._gradients(model, job)
        for gradients in steps:
            step(gradients)
            del gradients  # before the next ones are made beside them
        return model.params()

    def _gradients(
        self, model: ReusedModel, job: TrainingJob
    ) -> Iterator[list[Tensor]]:
        """Yield each step's gradient at what the weights are by then."""
        own_dropout = model.dropout(job)
        losses = job.recipe.loss.of(self._task)
        seen: list[Tensor] = []
        for batch in batches(job):
            with own_dropout:
                loss = self._loss(model.module, batch, losses)
            if job.on_losses:
                seen.append(loss.detach())
            yield list(torch.autograd.grad(loss, model.weights, materialize_grads=True))
        if job.on_losses and seen:
            job.on_losses(torch.stack(seen))

    def _loss(self, module: nn.Module, batch: Examples, losses: PerExample) -> Tensor:
        # The cache of cast weights is shared by all threads, and would outlive a step.
        with torch.autocast(
            "cpu", enabled=self._precision == "bfloat16", cache_enabled=False
        ):
            return losses(model_outputs(module, batch.inputs), batch.labels).mean()


def _bundles(jobs: Iterable[TrainingJob]) -> Iterator[list[TrainingJob]]:
    """Yield the jobs in their order, several at once where they are next to nothing.

    Handing a job to a thread and waiting for it takes longer than a step of a tiny model.
    """
    return bundled(jobs, training_work, BUNDLE, BUNDLED_WORK)


def _model_bytes(job: TrainingJob) -> int:
    return sum(value.nbytes for value in job.start.values())


@contextmanager
def _one_intra_op_thread() -> Iterator[None]:
    """Let the caller, too, take one core while others train: it merges what they return.

    More would wait for work in a loop, on the cores that the workers need. What the
    setting does to the default of every later thread is undone.
    """
    intra_op_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(intra_op_threads)
