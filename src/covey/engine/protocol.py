"""What an engine does: train clients' copies of a model, and score examples with it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, starmap
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from covey.base.components import Component
from covey.base.names import Params
from covey.base.rng import Streams
from covey.data.examples import Examples, to_floats
from covey.engine.recipe import MULTICLASS, Labels, Losses, Outputs, Recipe, Task
from covey.models.build import model_outputs, set_params

PART_SIZE = 100
"""Examples per forward pass: enough to fill a core, and memory stays bounded."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingJob:
    """Train from `start` on `examples`; the order of examples comes from `streams`.

    Attributes:
        memory: what the recipe's objective may look at, by name: what this client kept,
            and what the server sent along.
        on_losses: called once, with the losses of each batch's examples before its step;
            never by an engine that does not see them, nor where they were to stay hidden
            behind noise.
    """

    start: Params
    examples: Examples
    streams: Streams
    recipe: Recipe
    memory: Mapping[str, Params] = field(default_factory=dict[str, Params])
    on_losses: Callable[[Sequence[Losses]], None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ScoringJob:
    """Score every one of `examples` with the model `params`."""

    params: Params
    examples: Examples


class Scored(NamedTuple):
    """One model's answer on every example.

    Attributes:
        losses: in nats.
        predictions: what the model answers: the most probable class, every label, or a
            number (`covey.engine.recipe`).
        correct: the share of an example's labels that are right; None where nothing is
            simply right or wrong.
        log_probs: of every class; None without classes that exclude each other.
        num_tokens: how many labels of each example are not masked; None where labels are of
            whole examples.
    """

    losses: Float[Tensor, " examples"]
    predictions: Shaped[Tensor, "examples *label"]
    correct: Float[Tensor, " examples"] | None
    log_probs: Float[Tensor, "examples classes"] | None
    num_tokens: Int[Tensor, " examples"] | None = None

    @property
    def accuracy(self) -> float | None:
        """The share of all labels that are right, from whole counts; None as `correct`.

        Of tokens: the mean over examples of each one's share, whatever their lengths.
        """
        if self.correct is None or not len(self.correct):
            return None
        if self.num_tokens is not None:
            tokens = self.num_tokens.clamp(min=1)
            return float(((self.correct.double() * tokens).round() / tokens).mean())
        labels = self.predictions[0].numel()
        right = int((self.correct.double() * labels).round().sum())
        return right / (labels * len(self.correct))


@runtime_checkable
class Engine(Protocol):
    """A way to run many clients' local work; all of them agree to 1e-5."""

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        ...

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        ...


class EngineFactory(Component):
    """A way to run clients' training: write `build`, which makes an `Engine`.

    Attributes:
        is_remote: whether clients are on machines of their own, and keep their data there;
            what is built is then the engine of one such client.
        batches_clients: whether several clients are trained as one tensor, and never the
            gradient of a single example computed.
    """

    is_remote: ClassVar[bool] = False
    batches_clients: ClassVar[bool] = False

    def build(self, module: nn.Module, task: Task, *, per_client: bool = False) -> Engine:
        """Return the engine.

        Args:
            module: the architecture, and what is frozen in it.
            task: what the model predicts.
            per_client: whether training needs every client, or every example, by itself.
        """
        raise NotImplementedError


def num_steps(num_examples: int, recipe: Recipe) -> int:
    """Return how many gradient steps a client with so many examples takes.

    ceil(n / batch_size) per epoch, without a short last one if `drop_last`, or
    `local_steps`, and `least_steps` at the least; one if it `sums_gradients`; none without
    examples.
    """
    if num_examples == 0 or recipe.sums_gradients:
        return min(num_examples, 1)
    epoch_steps = math.ceil(used_examples(num_examples, recipe) / recipe.batch_size)
    steps = recipe.local_steps or recipe.local_epochs * epoch_steps
    return max(steps, recipe.least_steps)


def used_examples(num_examples: int, recipe: Recipe) -> int:
    """Return how many examples an epoch sees: where `drop_last`, in whole batches only.

    The only batch stays, however short. DP-SGD draws batches, and has no last one.
    """
    whole = num_examples - num_examples % recipe.batch_size
    drops = recipe.drop_last and not recipe.record_clip > 0
    return whole if drops and whole else num_examples


def batch_indices(
    num_examples: int, recipe: Recipe, generator: np.random.Generator
) -> list[Int[np.ndarray, " batch"]]:
    """Return the positions of each mini-batch's examples, step by step.

    Every epoch is a fresh permutation cut into pieces of `batch_size`, of which the last
    may be short, or is left out if `drop_last`. A number of steps takes that many pieces
    of an endless row of epochs. Without examples there are no batches.
    """
    used, size = used_examples(num_examples, recipe), recipe.batch_size
    steps, pieces = num_steps(num_examples, recipe), list[np.ndarray]()
    while len(pieces) < steps:
        order = generator.permutation(num_examples)[:used]
        pieces += [order[i : i + size] for i in range(0, used, size)]
    return pieces[:steps]


def job_indices(job: TrainingJob) -> list[Int[np.ndarray, " batch"]]:
    """Return the job's own `batch_indices`, from its stream `order`."""
    order = job.streams.at("order").generator()
    return batch_indices(len(job.examples), job.recipe, order)


def batches(job: TrainingJob) -> Iterator[Examples]:
    """Yield the job's mini-batches, converted to what a model sees."""
    augment = job.recipe.augment
    for step, chosen in enumerate(job_indices(job)):
        batch = job.examples.take(torch.from_numpy(chosen))
        inputs = to_floats(batch.inputs)
        if augment.changes:
            inputs = augment.changed(inputs, job.streams.at("augment", step))
        yield Examples(inputs, batch.labels)


def batches_together(jobs: Sequence[TrainingJob]) -> Iterator[list[Examples]]:
    """Yield each job's mini-batches, taken and converted for all jobs at once.

    What a processor does over and over again takes it half the time. It holds all examples of
    these jobs, and none is changed on the way (`Recipe.augment`).
    """
    everything = Examples.joined([job.examples for job in jobs])
    steps, first, chosen = list[int](), 0, list[np.ndarray]()
    for job in jobs:
        own = job_indices(job)
        chosen += [index + first for index in own]
        steps.append(len(own))
        first += len(job.examples)
    sizes = [len(indices) for indices in chosen]
    taken = everything.take(torch.from_numpy(np.concatenate(chosen)))
    pieces = zip(to_floats(taken.inputs).split(sizes), taken.labels.split(sizes), strict=True)
    batches = starmap(Examples, pieces)
    for count in steps:
        yield list(islice(batches, count))


class EngineOver:
    """An engine over another one, which trains."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        return self._engine.train(jobs)


class ScoredOnce(EngineOver):
    """An engine that scores a model on the same examples once, however often it is called.

    The same are the same objects. It keeps the scores and their jobs, so it is for
    one stage of a run; log-probabilities, which are many, it neither keeps nor returns.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._scored: dict[tuple[int, int], tuple[ScoringJob, Scored]] = {}

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        keys = [(id(job.params), id(job.examples)) for job in jobs]
        new = {k: job for k, job in zip(keys, jobs, strict=True) if k not in self._scored}
        scored = self._engine.score(list(new.values()))
        for (key, job), scores in zip(new.items(), scored, strict=True):
            # the job beside it keeps both ids taken
            self._scored[key] = job, scores._replace(log_probs=None)
        return [self._scored[key][1] for key in keys]


class CompletingEngine(EngineOver):
    """An engine for models that lack entries: those of a client that keeps its own.

    Args:
        engine: trains and scores whole models.
        drawn: the entries, where a job has none; a trained model has them too.
    """

    def __init__(self, engine: Engine, drawn: Params) -> None:
        super().__init__(engine)
        self._drawn = drawn

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        whole = (replace(job, start={**self._drawn, **job.start}) for job in jobs)
        return self._engine.train(whole)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        whole = [replace(job, params={**self._drawn, **job.params}) for job in jobs]
        return self._engine.score(whole)


def split_job(job: ScoringJob) -> Iterator[ScoringJob]:
    """Cut a job into consecutive jobs of at most `PART_SIZE` examples."""
    whole = job.examples
    for first in range(0, max(1, len(whole)), PART_SIZE):
        part = slice(first, first + PART_SIZE)
        half = replace(whole, inputs=whole.inputs[part], labels=whole.labels[part])
        yield ScoringJob(job.params, half)


def num_parts(job: ScoringJob) -> int:
    """Return how many parts `split_job` makes of a job; one, empty, of no examples."""
    return max(1, math.ceil(len(job.examples) / PART_SIZE))


def score_part(module: nn.Module, examples: Examples, task: Task) -> Scored:
    """Return the scores of all examples at once, by a module as it is."""
    if module.training:
        module.eval()
    with torch.no_grad():
        outputs = model_outputs(module, to_floats(examples.inputs))
        return scored(outputs, examples.labels, task)


def scored(outputs: Outputs, labels: Labels, task: Task) -> Scored:
    """Return what a task makes of a model's outputs."""
    predictions = task.predictions(outputs)
    return Scored(
        losses=task.losses(outputs, labels),
        predictions=predictions,
        correct=task.correct(predictions, labels),
        log_probs=task.log_probs(outputs),
        num_tokens=task.num_tokens(labels),
    )


def concatenated(parts: Iterable[Scored]) -> Scored:
    """Undo `split_job` on the scores."""
    columns = zip(*parts, strict=True)
    return Scored._make(None if column[0] is None else torch.cat(column) for column in columns)


def score_whole(module: nn.Module, job: ScoringJob, task: Task = MULTICLASS) -> Scored:
    """Score one job, part after part; the module takes on its params."""
    set_params(module, job.params)
    return concatenated(score_part(module, part.examples, task) for part in split_job(job))
