"""The engines for CPUs: the plain loop to read, and clients in parallel threads of one core each.

Small models gain nothing from several cores inside one operation, so every thread runs
its client alone. A client's result does not depend on the number of threads, to the bit.
"""

import copy
import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import cached_property, lru_cache, partial
from itertools import chain, islice
from typing import ClassVar, Literal, TypeVar

import torch
from torch import (
    Tensor,
    _foreach_copy_,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from covey.base.names import Params
from covey.base.params import FlatParams, flat, places_of
from covey.data.examples import Examples
from covey.engine.descent import corrected, in_order, reshaping, trainable
from covey.engine.dropout import SeededDropout, check_dropout, has_dropout
from covey.engine.example_gradients import gradient_sum, private_gradients
from covey.engine.protocol import (
    Scored,
    ScoringJob,
    TrainingJob,
    batches,
    batches_together,
    concatenated,
    num_parts,
    num_steps,
    score_part,
    score_whole,
    split_job,
)
from covey.engine.recipe import MULTICLASS, Losses, Task
from covey.models.build import exchanged_params, frozen_params, model_outputs, set_params

Precision = Literal["float32", "bfloat16"]
"""What a step of plain SGD multiplies in; DP-SGD, parameters and scores: float32."""


Job = TypeVar("Job")


BUNDLES_IN_FLIGHT = 8
"""Bundles of scoring jobs per thread that wait or are done, so that none of them idles."""

BUNDLE = 32
"""Tiny training jobs that are done together, at most."""

BUNDLED_WORK = 1e6
"""Parameters times examples of a bundle: a millisecond or so. What is more goes alone."""

LARGE_MODEL = 16 * 2**20
"""From so many bytes on, one trained model waits for its turn, and not one per thread."""


class ReusedModel:
    """One module, whose parameters begin anew with every job.

    Walking through a module takes longer than a step of a tiny model, so what does not
    change from job to job is looked up once.

    Attributes:
        weights: what is trained, in the module's order.
        names: theirs.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        own = trainable(module)
        self.names, self.weights = list(own), list[Tensor](own.values())
        self._has_dropout = has_dropout(module)
        self._parameters = _whole_state(module)
        self._shapes = {
            name: parameter.shape for name, parameter in (self._parameters or {}).items()
        }
        self._places = places_of(self._parameters) if self._parameters else None

    def begin_at(self, start: Params) -> None:
        """Set what is trained, and the mode of training.

        Raises:
            RuntimeError: `start` is of another model.
        """
        self.train()
        self.take(start)

    def take(self, params: Params) -> None:
        """Set what is trained.

        Raises:
            RuntimeError: it is of another model.
        """
        parameters = self._parameters
        if parameters is None or self._shapes != {
            name: value.shape for name, value in params.items()
        }:
            set_params(self.module, params)
        else:
            with torch.no_grad():
                _foreach_copy_(list(parameters.values()), [params[name] for name in parameters])

    def params(self) -> Params:
        """Return a copy of what the module is by now."""
        parameters = self._parameters
        if parameters is not None and self._places is not None:
            places, length = self._places
            copy = FlatParams.at(self.weights[0].detach().new_zeros(length), places)
            with torch.no_grad():
                _foreach_copy_(list(copy.values()), list(parameters.values()))
            return copy
        state = exchanged_params(self.module) if parameters is None else parameters
        return {
            name: value.detach().clone(memory_format=torch.contiguous_format)
            for name, value in state.items()
        }

    def train(self) -> None:
        """Set the mode of training."""
        if not self.module.training:
            self.module.train()

    @cached_property
    def flat(self) -> FlatParams | None:
        """The model as one vector, of which the module's parameters are views from now on.

        None: it is large, more than its parameters, or in a layout of its own.
        """
        parameters = self._parameters or {}
        apart = len({value.data_ptr() for value in parameters.values()}) == len(parameters)
        model = (
            flat({name: value.detach() for name, value in parameters.items()}) if apart else None
        )
        if not isinstance(model, FlatParams):
            return None
        if any(view.stride() != parameters[name].stride() for name, view in model.items()):
            return None  # as those of convolutions, which go by it
        for name, view in model.items():
            parameters[name].data = view
        return model

    def dropout(self, job: TrainingJob) -> AbstractContextManager[object]:
        """Return a block, to enter around each forward pass, that draws the job's masks."""
        return SeededDropout(self.module, job) if self._has_dropout else nullcontext()


def _whole_state(module: nn.Module) -> dict[str, Tensor] | None:
    """Return a module's trained parameters, if they are a whole model; None: they are not.

    A buffer may be replaced while a model runs, and a module may save other tensors than
    it has: only parameters that are saved as they are can be set and read directly.
    """
    own = module.named_parameters(remove_duplicate=False)
    parameters: dict[str, Tensor] = {name: value for name, value in own if value.requires_grad}
    saved = exchanged_params(module)
    is_whole = list(saved) == list(parameters) and all(
        saved[name].data_ptr() == value.data_ptr() for name, value in parameters.items()
    )
    return parameters if is_whole else None


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


def training_work(job: TrainingJob, frozen: int = 0) -> float:
    """Return numbers times the examples that are seen, each as often as it is.

    Numbers are those of the model, or of an example where these are more.

    Args:
        job: what is trained.
        frozen: how many numbers the module has beside the model.
    """
    size = len(job.examples)
    batch = size if job.recipe.sums_gradients else job.recipe.batch_size
    seen = num_steps(size, job.recipe) * batch
    of_example = job.examples.inputs.numel() // max(size, 1)
    return float(max(num_parameters(job.start) + frozen, of_example) * seen)


def scoring_work(job: ScoringJob) -> float:
    """Return numbers of the model times the examples that are seen."""
    return float(num_parameters(job.params) * len(job.examples))


def num_parameters(params: Params) -> int:
    """Return how many numbers a model has."""
    return sum(value.numel() for value in params.values())


class ReferenceEngine:
    """Train clients one by one with an optimizer object.

    The module gives the architecture and what is frozen in it: its other parameters are
    never used, and none is changed.
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
        return [score_whole(copy.deepcopy(self._module), job, self._task) for job in jobs]

    def _train_one(self, job: TrainingJob) -> Params:
        module = copy.deepcopy(self._module)
        set_params(module, job.start)
        module.train()
        weights, recipe = trainable(module), job.recipe
        values: list[Tensor] = [*weights.values()]
        start = [value.detach().clone() for value in values]
        memory = in_order(job, list(weights))
        optimizer = recipe.optimizer.make(values, recipe.learning_rate)
        own_dropout = SeededDropout(module, job)
        for gradients in _gradients(module, values, job, batches(job), self._task, own_dropout):
            with torch.no_grad():
                extra = corrected(recipe.objective, values, start, memory)
            for i, value in enumerate(values):
                value.grad = gradients[i] if extra is None else gradients[i] + extra[i]
            if recipe.max_gradient_norm:
                nn.utils.clip_grad_norm_(values, recipe.max_gradient_norm)
            optimizer.step()
        return exchanged_params(module)


def _gradients(
    module: nn.Module,
    weights: list[Tensor],
    job: TrainingJob,
    steps: Iterable[Examples],
    task: Task,
    own_dropout: AbstractContextManager[object],
    precision: Precision = "float32",
) -> Iterator[list[Tensor]]:
    """Yield the gradient of each step's mean loss at what the weights are by then."""
    if job.recipe.sums_gradients:
        yield gradient_sum(module, job, task)
        return
    if job.recipe.record_clip > 0:
        yield from private_gradients(module, job, task)
        return
    losses_of, seen = job.recipe.loss.of(task), list[Losses]()
    plain = precision == "float32" and isinstance(own_dropout, nullcontext)
    for batch in steps:
        if plain:  # blocks that do nothing take as long as an operation
            losses = losses_of(model_outputs(module, batch.inputs), batch.labels)
        else:
            with own_dropout, _multiplying_in(precision):
                losses = losses_of(model_outputs(module, batch.inputs), batch.labels)
        if job.on_losses:
            seen.append(losses.detach())
        shares = _shares(len(batch), losses.dtype)  # of the mean, without the operation
        yield list(torch.autograd.grad(losses, weights, shares, materialize_grads=True))
    if job.on_losses and seen:
        job.on_losses(seen)


@lru_cache(maxsize=64)
def _shares(count: int, dtype: torch.dtype) -> Tensor:
    return torch.full((count,), 1 / count, dtype=dtype)


def _multiplying_in(precision: Precision) -> AbstractContextManager[object]:
    """Return a block whose forward pass multiplies in this type."""
    if precision == "float32":
        return nullcontext()
    # The cache of cast weights is shared by all threads, and would outlive a step.
    return torch.autocast("cpu", cache_enabled=False)


Result = TypeVar("Result")


SCORED_TOGETHER, SCORING_WORK = 8, 1e7
"""Parts of scoring jobs that a thread is handed at once, at most, and their work."""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""

KEPT_MEMORY, LARGEST_KEPT = 64 * 2**20, 32 * 2**20
"""Bytes that a thread keeps, once freed, for its next step, and of the largest tensor."""


class ParallelEngine:
    """Train and score on `workers` threads with one intra-op thread each.

    The module gives the architecture and what is frozen in it. Jobs are taken as
    threads become free: at most `2 * workers` are in flight, `workers + 1` where models are
    large. Jobs that are next to nothing are done in bundles by the thread that takes their
    models: several would spend their time waiting for the interpreter's lock.

    Attributes:
        hands_over: whether only the taker holds a model that `train` yields.
        precision: what a step multiplies in.
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
        _keep_freed_memory(KEPT_MEMORY, LARGEST_KEPT)
        self._module = module
        self._task = task
        self._workers = workers
        self.precision: Precision = precision
        # Handing a job to a thread and waiting for it takes longer than a step of a tiny model.
        self._work_of = partial(training_work, frozen=num_parameters(frozen_params(module)))
        self._thread_local = threading.local()
        # The threads live as long as the engine: each new one would get a memory arena
        # of its own, and a run of many rounds would keep them all.
        # The setting binds each of them and every thread born later, but not the caller's.
        self._pool = ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1))

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        bundles = bundled(jobs, self._work_of, BUNDLE, BUNDLED_WORK)
        if (first := next(bundles, None)) is None:
            return
        model_bytes = sum(value.nbytes for value in first[0].start.values())
        ahead = 1 if model_bytes > LARGE_MODEL else self._workers
        results = self._results(
            self._train_bundle,
            chain([first], bundles),
            self._workers + ahead,
            here=lambda jobs: len(jobs) > 1,
        )
        # an error keeps this frame alive, and would leave the caller with one thread
        with closing(results):
            for trained, error in results:
                trained.reverse()
                while trained:  # the taker of a model is the only one to hold it
                    yield trained.pop()
                if error is not None:
                    raise error

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        parts = (part for job in jobs for part in split_job(job))
        bundles = bundled(parts, scoring_work, SCORED_TOGETHER, SCORING_WORK)
        results = self._results(self._score_bundle, bundles, BUNDLES_IN_FLIGHT * self._workers)
        scored = chain.from_iterable(results)
        return [concatenated(islice(scored, num_parts(job))) for job in jobs]

    def _results(
        self,
        work: Callable[[Job], Result],
        jobs: Iterable[Job],
        max_in_flight: int,
        here: Callable[[Job], bool] = lambda _: False,
    ) -> Generator[Result]:
        """Yield each job's result in order, with at most `max_in_flight` in flight.

        A job holds a copy of its examples: all at once, they would fill the memory.

        Args:
            work: done with each job.
            jobs: taken one by one.
            max_in_flight: of jobs.
            here: whether the calling thread does the job itself.
        """
        in_flight: deque[Future[Result]] = deque()
        with one_intra_op_thread():
            try:
                for job in jobs:
                    in_flight.append(
                        _done(work(job)) if here(job) else self._pool.submit(work, job)
                    )
                    if len(in_flight) == max_in_flight:
                        yield in_flight.popleft().result()
                while in_flight:
                    yield in_flight.popleft().result()
            finally:
                for abandoned in in_flight:
                    abandoned.cancel()

    @property
    def _model(self) -> ReusedModel:
        """This thread's own."""
        if not hasattr(self._thread_local, "model"):
            # Convolutions follow the layout of their weights, and are faster in this one.
            own = copy.deepcopy(self._module).to(
                memory_format=torch.channels_last  # pyright: ignore[reportCallIssue]
            )
            self._thread_local.model = ReusedModel(own)
        return self._thread_local.model

    def _score_bundle(self, parts: Sequence[ScoringJob]) -> list[Scored]:
        model, scores = self._model, list[Scored]()
        for part in parts:
            model.take(part.params)
            scores.append(score_part(model.module, part.examples, self._task))
        return scores

    def _train_bundle(self, jobs: Sequence[TrainingJob]) -> tuple[list[Params], Exception | None]:
        """Return what was trained, and what stopped it."""
        model = self._model.flat if len(jobs) > 1 and _are_alike(jobs) else None
        if model is not None:
            return self._train_alike(jobs, model)
        trained: list[Params] = []
        try:
            trained.extend(map(self._train_one, jobs))
        except Exception as error:
            return trained, error
        return trained, None

    def _train_alike(
        self, jobs: Sequence[TrainingJob], model: FlatParams
    ) -> tuple[list[Params], Exception | None]:
        """Do so with all that is not a step done for all jobs at once."""
        starts, trained, stopped = dict[int, FlatParams](), list[Tensor](), None
        self._model.train()
        try:
            for job, steps in zip(jobs, batches_together(jobs), strict=True):
                if id(job.start) not in starts:
                    starts[id(job.start)] = model.laid_out(job.start)
                model.vector.copy_(starts[id(job.start)].vector)
                self._descend(job, steps)
                trained.append(model.vector.clone())
        except Exception as error:
            stopped = error
        return [*model.unstacked(trained)], stopped

    def _train_one(self, job: TrainingJob) -> Params:
        self._model.begin_at(job.start)
        self._descend(job, batches(job))
        return self._model.params()

    def _descend(self, job: TrainingJob, steps: Iterable[Examples]) -> None:
        model, recipe = self._model, job.recipe
        step = recipe.optimizer.begin(model.weights, recipe.learning_rate)
        step = reshaping(step, recipe, model.weights, in_order(job, model.names))
        own_dropout = model.dropout(job)
        for gradients in _gradients(
            model.module, model.weights, job, steps, self._task, own_dropout, self.precision
        ):
            step(gradients)
            del gradients  # before the next ones are made beside them


def _are_alike(jobs: Sequence[TrainingJob]) -> bool:
    """Say whether several jobs' batches can be made at once, and no example for nothing."""
    kinds = set[object]()
    for job in jobs:
        inputs, labels, recipe = job.examples.inputs, job.examples.labels, job.recipe
        count = len(job.examples)
        if recipe.augment.changes or recipe.sums_gradients or recipe.record_clip > 0:
            return False
        if not 0 < count <= num_steps(count, recipe) * recipe.batch_size:
            return False
        kinds.add((inputs.dtype, inputs.shape[1:], labels.dtype, labels.shape[1:]))
    return len(kinds) == 1


def _done(result: Result) -> Future[Result]:
    """Return a future that has come."""
    future = Future[Result]()
    future.set_result(result)
    return future


@contextmanager
def one_intra_op_thread() -> Iterator[None]:
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


def _keep_freed_memory(most: int, largest: int) -> bool:
    """Let threads keep freed memory for what they take next, where the system is glibc's.

    By itself glibc gives back what a step of training frees at its end, and requests it
    again in the next: thousands of page faults a second, for which threads wait for each
    other. What the process's environment says of it stands.

    Args:
        most: bytes at the end of an arena that are kept.
        largest: bytes of what is kept at all; more is taken, and given back, alone.

    Returns:
        Whether it is so from now on.
    """
    is_set = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") for name in os.environ
    )
    if sys.platform != "linux" or is_set:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(_M_MMAP_THRESHOLD, largest) and mallopt(_M_TRIM_THRESHOLD, most)
    )
