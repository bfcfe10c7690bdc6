"""What runs on a node: one process that trains and scores on the node's cores."""

import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from covey.engine.on_ray.packing import (
    Packed,
    PackedParams,
    PackedScored,
    pack,
    pack_params,
    pack_scored,
    unpack_examples,
    unpack_params,
)
from covey.engine.parallel import ParallelEngine, Precision
from covey.engine.protocol import ScoringJob, TrainingJob
from covey.engine.recipe import Recipe
from covey.engine.recorded_loss import RecordedJob
from covey.engine.task import Task
from covey.rng import Streams
from covey.version import __version__

__all__ = ["Host", "Ref", "SentScoring", "SentTraining", "Setup", "Trained", "versions"]

Ref = Any
"""`ray.ObjectRef`: something that Ray keeps, and brings to a node that asks for it."""

SETUPS = 2
"""Engines that a host keeps; another one is made anew when it is asked for again."""


class Setup(NamedTuple):
    """What makes the parallel engine of a node; threads it has by the node."""

    module: nn.Module
    precision: Precision
    task: Task


class SentTraining(NamedTuple):
    """A training job whose tensors Ray keeps.

    Attributes:
        wants_losses: whether somebody asks for each step's loss.
        is_recorded: whether somebody asks for the loss of every example of each step.
    """

    start: Ref
    examples: Ref
    streams: Streams
    recipe: Recipe
    memory: Mapping[str, Ref]
    wants_losses: bool
    is_recorded: bool


class SentScoring(NamedTuple):
    """A scoring job whose tensors Ray keeps."""

    params: Ref
    examples: Ref


class Trained(NamedTuple):
    """A trained model, and the losses that somebody asks for."""

    params: PackedParams
    losses: Sequence[Packed]
    recorded: Sequence[Packed]


class _Training(NamedTuple):
    """A job as it is trained here, and where its losses gather."""

    job: TrainingJob
    losses: list[Tensor]
    recorded: list[Tensor]


def versions() -> tuple[str, str]:
    """Return what must be alike on all nodes: the versions of covey and torch."""
    return __version__, torch.__version__.partition("+")[0]


class Host:
    """One per node. Calls come in parallel: their jobs share the threads.

    Args:
        workers: threads.
    """

    def __init__(self, workers: int) -> None:
        # examples are read only: batches are copies
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        self._workers = workers
        self._engines: OrderedDict[str, ParallelEngine] = OrderedDict()
        self._making = threading.Lock()

    def versions(self) -> tuple[str, str]:
        """Return the versions of covey and torch here."""
        return versions()

    def train(
        self, setup: Sequence[Ref], jobs: Sequence[SentTraining]
    ) -> list[Trained]:
        """Return what each job comes to. `setup` is one reference."""
        known = _known([ref for job in jobs for ref in _refs(job)])
        here = [_training(job, known) for job in jobs]
        engine = self._engine(setup[0])
        trained = engine.train(each.job for each in here)
        return [
            Trained(
                pack_params(params),
                [pack(losses) for losses in each.losses],
                [pack(losses) for losses in each.recorded],
            )
            for each, params in zip(here, trained, strict=True)
        ]

    def score(
        self, setup: Sequence[Ref], jobs: Sequence[SentScoring]
    ) -> list[PackedScored]:
        """Return each job's scores. `setup` is one reference."""
        known = _known([ref for job in jobs for ref in job])
        here = [
            ScoringJob(
                unpack_params(known[job.params], copy=False),
                unpack_examples(known[job.examples]),
            )
            for job in jobs
        ]
        return [pack_scored(each) for each in self._engine(setup[0]).score(here)]

    def _engine(self, setup: Ref) -> ParallelEngine:
        with self._making:
            key = setup.hex()
            engine = self._engines.pop(key, None) or self._made(setup)
            self._engines[key] = engine
            while len(self._engines) > SETUPS:
                self._engines.popitem(last=False)
            return engine

    def _made(self, setup: Ref) -> ParallelEngine:
        import ray

        found: Setup = ray.get(setup)
        return ParallelEngine(found.module, self._workers, found.precision, found.task)


def _refs(job: SentTraining) -> list[Ref]:
    return [job.start, job.examples, *job.memory.values()]


def _known(refs: Sequence[Ref]) -> dict[Ref, Any]:
    """Return what Ray keeps under these references, each asked for once."""
    import ray

    asked = list(dict.fromkeys(refs))
    return dict(zip(asked, ray.get(asked), strict=True))


def _training(sent: SentTraining, known: Mapping[Ref, Any]) -> _Training:
    losses: list[Tensor] = []
    job = TrainingJob(
        start=unpack_params(known[sent.start], copy=False),
        examples=unpack_examples(known[sent.examples]),
        streams=sent.streams,
        recipe=sent.recipe,
        # an objective of a user's own may write to what it is given
        memory={key: unpack_params(known[ref]) for key, ref in sent.memory.items()},
        on_losses=losses.append if sent.wants_losses else None,
    )
    watched = RecordedJob(job)
    if sent.is_recorded:
        job = watched.recorded
    return _Training(job, losses, watched.batches)
