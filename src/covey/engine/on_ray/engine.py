"""The engine for several machines: clients on the nodes of a Ray cluster.

Every node runs the parallel engine's loop, so the results are those of the parallel
engine, whichever node computed them. Clients' examples stay in Ray's store, which holds
them once per node; models are put there once per call.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from covey.data.examples import Examples
from covey.engine.bundles import bundled, num_parameters, training_work
from covey.engine.dropout import check_dropout
from covey.engine.on_ray.cluster import library, shared_hosts
from covey.engine.on_ray.dispatch import results_of
from covey.engine.on_ray.host import Ref, SentScoring, SentTraining, Setup, Trained
from covey.engine.on_ray.packing import (
    pack_examples,
    pack_params,
    unpack,
    unpack_params,
    unpack_scored,
)
from covey.engine.parallel import Precision
from covey.engine.protocol import Scored, ScoringJob, TrainingJob
from covey.engine.recorded_loss import without_recording
from covey.engine.task import MULTICLASS, Task
from covey.types import Params

__all__ = ["RayEngine"]

Job = TypeVar("Job", TrainingJob, ScoringJob)

BUNDLE = 32
"""Jobs that go to a node at once, at most."""

BUNDLED_WORK = 1e7
"""Parameters times examples of a bundle: what takes well longer than to send it."""

MODELS = 16
"""Models of a call that stay in Ray's store: as many as a run usually has clusters."""


class RayEngine:
    """Train and score on all nodes that have processors, by so many threads on each.

    Nodes are connected to when something is to be done, and looked up again at every
    call. Engines with one address and number of workers share their processes.

    Args:
        module: gives the architecture only.
        workers: threads per node; 0: one for each of its processors.
        precision: as of the parallel engine.
        task: what the model is asked for.
        address: of the cluster; "": `RAY_ADDRESS`, else one that is started here.

    Raises:
        ConfigError: Ray is not installed.
    """

    def __init__(
        self,
        module: nn.Module,
        workers: int = 0,
        precision: Precision = "float32",
        task: Task = MULTICLASS,
        address: str = "",
    ) -> None:
        check_dropout(module)
        self._ray = library()
        self._hosts = shared_hosts(address, workers)
        self._setup = Setup(module, precision, task)
        self._setup_ref: Ref = None
        self._examples: WeakKeyDictionary[Examples, Ref] = WeakKeyDictionary()

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs.

        Raises:
            ConfigError: there is no cluster.
            EngineError: clients' work was lost as often as it was sent.
        """
        setup, models = self._ready(), _Models(self._ray)
        bundles = (
            (bundle, [self._sent(job, models) for job in bundle])
            for bundle in _bundles(jobs, training_work)
        )
        for bundle, results in results_of(self._hosts, "train", setup, bundles):
            for job, trained in zip(bundle, results, strict=True):
                yield _told(job, trained)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs.

        Raises:
            ConfigError: there is no cluster.
            EngineError: clients' work was lost as often as it was sent.
        """
        setup, models = self._ready(), _Models(self._ray)
        bundles = (
            (
                bundle,
                [
                    SentScoring(models.ref(job.params), self._placed(job.examples))
                    for job in bundle
                ],
            )
            for bundle in _bundles(jobs, _scoring_work)
        )
        found = results_of(self._hosts, "score", setup, bundles)
        return [unpack_scored(each) for _, scored in found for each in scored]

    def _ready(self) -> Ref:
        """Return what nodes make their engines from, when all of them are there."""
        self._hosts.refresh()
        if self._setup_ref is None:
            self._setup_ref = self._ray.put(self._setup)
        return self._setup_ref

    def _placed(self, examples: Examples) -> Ref:
        """Return where Ray keeps examples, for as long as somebody here has them."""
        ref = self._examples.get(examples)
        if ref is None:
            ref = self._examples[examples] = self._ray.put(pack_examples(examples))
        return ref

    def _sent(self, job: TrainingJob, models: "_Models") -> SentTraining:
        plain, put_down = without_recording(job)
        return SentTraining(
            start=models.ref(job.start),
            examples=self._placed(job.examples),
            streams=job.streams,
            recipe=plain.recipe,
            memory={key: models.ref(kept) for key, kept in job.memory.items()},
            wants_losses=job.on_losses is not None,
            is_recorded=put_down is not None,
        )


class _Models:
    """The latest models of one call; the same object goes to Ray's store once."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401 - a module
        self._ray = ray
        self._kept: OrderedDict[int, tuple[Params, Ref]] = OrderedDict()

    def ref(self, params: Params) -> Ref:
        """Return where Ray keeps a model."""
        key = id(params)
        kept = self._kept.pop(key, None)
        if kept is None:  # the model is kept beside, which keeps its id from others
            kept = params, self._ray.put(pack_params(params))
        self._kept[key] = kept
        if len(self._kept) > MODELS:
            self._kept.popitem(last=False)
        return kept[1]


def _told(job: TrainingJob, trained: Trained) -> Params:
    """Return a trained model, once who asks for losses has been told."""
    _, put_down = without_recording(job)
    for losses in trained.recorded:
        if put_down is not None:
            put_down(unpack(losses))
    for losses in trained.losses:
        if job.on_losses is not None:
            job.on_losses(unpack(losses))
    return unpack_params(trained.params)


def _bundles(
    jobs: Iterable[Job], work_of: Callable[[Job], float]
) -> Iterator[list[Job]]:
    """Yield the jobs in their order, several at once where they are soon done."""
    return bundled(jobs, work_of, BUNDLE, BUNDLED_WORK)


def _scoring_work(job: ScoringJob) -> float:
    return float(num_parameters(job.params) * len(job.examples))
