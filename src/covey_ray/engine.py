"""The engine `ray`: clients are trained and scored on all nodes of a Ray cluster.

Every node runs the parallel engine's loop, so the results are those of the parallel engine,
whichever node computed them. Jobs go to the nodes in bundles, and again where a node is lost.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from covey import (
    Engine,
    EngineError,
    EngineFactory,
    Examples,
    Params,
    Scored,
    ScoringJob,
    Task,
    TrainingJob,
)
from covey.base.components import Count
from covey.engine.cpu import ParallelEngine, Precision, bundled, num_parameters, training_work
from covey.engine.dropout import check_dropout
from covey.engine.recipe import MULTICLASS
from covey.models.build import frozen_params
from covey_ray.cluster import CALLS_PER_THREAD, Held, Hosts, RayNode, Ref, library, shared_hosts

Stand = Any
"""A `Held`, in the place of what it holds."""

_TRIES = 3
"""How often a bundle is sent before a run ends."""

_BUNDLE = 32
"""Jobs that go to a node at once, at most."""

BUNDLED_WORK = 1e7
"""Parameters times examples of a bundle: what takes well longer than to send it."""

_MODELS = 16
"""Models of a call that stay in Ray's store: as many as a run usually has clusters."""

Job = TypeVar("Job", TrainingJob, ScoringJob)


@dataclass(eq=False)
class _Sent(Generic[Job]):
    """A bundle on its way.

    Attributes:
        bundle: the jobs as they are here.
        parcel: the same as they are sent.
        tries: how often they were.
    """

    bundle: Sequence[Job]
    parcel: Sequence[Any]
    node: RayNode | None = None
    ref: Ref = None
    tries: int = 0


@dataclass(eq=False)
class _Dispatch(Generic[Job]):
    """Sends bundles to nodes, and again where a node is lost.

    Attributes:
        method: of the hosts.
        setup: what they work with.
    """

    hosts: Hosts
    method: str
    setup: Ref
    on_the_way: deque[_Sent[Job]] = field(default_factory=deque)

    def results(
        self, bundles: Iterable[Sequence[Job]], packed: Callable[[Job], Any]
    ) -> Iterator[tuple[Job, Any]]:
        """Yield, in order, every job with what a node made of it.

        Args:
            bundles: taken as there is room.
            packed: returns what is sent of a job.

        Raises:
            EngineError: a bundle was lost as often as it was sent.
        """
        try:
            for bundle in bundles:
                sent = _Sent(bundle, [packed(job) for job in bundle])
                self._send(sent)
                self.on_the_way.append(sent)
                threads = sum(node.workers for node in self.hosts.nodes.values())
                if len(self.on_the_way) >= CALLS_PER_THREAD * threads:
                    yield from self._first()
            while self.on_the_way:
                yield from self._first()
        finally:  # what no caller waits for is called back; what has begun ends by itself
            for sent in self.on_the_way:
                if library().is_initialized():
                    library().cancel(sent.ref)

    def _send(self, sent: _Sent[Job]) -> None:
        """Send a bundle to the node that has the least to do for its size."""
        if not self.hosts.nodes:
            self.hosts.refresh()
        by_ref = {job.ref: job.node for job in self.on_the_way if job.ref is not None}
        busy = Counter[str]()
        if by_ref:
            _, unfinished = library().wait(
                list(by_ref), num_returns=len(by_ref), timeout=0, fetch_local=False
            )
            busy.update(node.name for ref in unfinished if (node := by_ref[ref]) is not None)
        sent.node = min(self.hosts.nodes.values(), key=lambda node: busy[node.name] / node.workers)
        call = getattr(sent.node.host, self.method)
        sent.ref, sent.tries = call.remote([self.setup], sent.parcel), sent.tries + 1

    def _first(self) -> Iterator[tuple[Job, Any]]:
        """Return the results of the bundle that was sent first."""
        sent, ray = self.on_the_way[0], library()
        while True:
            try:
                results = ray.get(sent.ref)
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):
                    raise cause from error
                self._send_again(sent.node, error)
            else:
                self.on_the_way.popleft()
                return zip(sent.bundle, results, strict=True)

    def _send_again(self, lost: RayNode | None, reason: Exception) -> None:
        """Send all that a lost node had to do to others.

        Raises:
            EngineError: something was sent often enough.
        """
        if lost is not None:
            self.hosts.lose(lost)
        for sent in self.on_the_way:
            if sent.node is lost:
                if sent.tries >= _TRIES:
                    raise EngineError(
                        f"A Ray node must finish clients' work in {_TRIES} tries, found each lost "
                        f"({reason}): look at its memory and `ray status`, and resume the run."
                    ) from reason
                sent.ref = None
        for sent in self.on_the_way:
            if sent.ref is None:
                self._send(sent)


class Ray(EngineFactory):
    """`parallel` on every node of a Ray cluster (`docs/guides/scaling.md`): `workers` threads each.

    Attributes:
        workers: threads on each node; 0: one for each of its processors. Changes no result.
        precision: `float32`, or `bfloat16`: faster training on CPUs and GPUs that have it.
        address: of the cluster, `auto` or `host:port`; empty: `RAY_ADDRESS`, else one that
            is started on this machine. Changes no result.
    """

    workers: Count = 0
    precision: Precision = "float32"
    address: str = ""

    def build(self, module: nn.Module, task: Task, *, per_client: bool = False) -> Engine:  # noqa: ARG002
        """Return the engine."""
        return RayEngine(module, self.workers, self.precision, task, self.address)


class RayEngine:
    """Train and score on all nodes that have processors, by so many threads on each.

    Nodes are connected to when something is to be done, and looked up again at every
    call. Engines with one address and number of workers share their processes.

    Args:
        module: gives the architecture and what is frozen in it.
        workers: threads per node; 0: one for each of its processors.
        precision: as of the parallel engine.
        task: what the model predicts.
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
        # what makes the engine of a node, which has threads by the node
        self._setup = partial(ParallelEngine, module, precision=precision, task=task)
        self._setup_ref: Ref = None
        self._frozen = num_parameters(frozen_params(module))
        self._examples: WeakKeyDictionary[Examples, Stand] = WeakKeyDictionary()

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs.

        Raises:
            ConfigError: there is no cluster.
            EngineError: clients' work was lost as often as it was sent.
        """
        dispatch, models = self._dispatch("train"), _Models(self._ray)

        def packed(job: TrainingJob) -> tuple[TrainingJob, bool]:
            return replace(
                job,
                start=models.held(job.start),
                examples=self._held(job.examples),
                memory={key: models.held(value) for key, value in job.memory.items()},
                on_losses=None,
            ), job.on_losses is not None

        work_of = partial(training_work, frozen=self._frozen)
        bundles = bundled(jobs, work_of, _BUNDLE, BUNDLED_WORK)
        for job, (trained, losses) in dispatch.results(bundles, packed):
            if job.on_losses is not None and losses:
                job.on_losses(losses)
            yield trained

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs.

        Raises:
            ConfigError: there is no cluster.
            EngineError: clients' work was lost as often as it was sent.
        """
        dispatch, models = self._dispatch("score"), _Models(self._ray)

        def packed(job: ScoringJob) -> ScoringJob:
            return ScoringJob(models.held(job.params), self._held(job.examples))

        def work_of(job: ScoringJob) -> float:
            return float((num_parameters(job.params) + self._frozen) * len(job.examples))

        bundles = bundled(jobs, work_of, _BUNDLE, BUNDLED_WORK)
        return [scored for _, scored in dispatch.results(bundles, packed)]

    def _dispatch(self, method: str) -> "_Dispatch[Any]":
        """Return the way to all nodes, which have what they make their engines from."""
        self._hosts.refresh()
        self._setup_ref = self._setup_ref or self._ray.put(self._setup)
        return _Dispatch(self._hosts, method, self._setup_ref)

    def _held(self, examples: Examples) -> Stand:
        """Return examples in Ray's store, for as long as somebody here has them."""
        if examples not in self._examples:
            self._examples[examples] = Held(self._ray, examples)
        return self._examples[examples]


class _Models:
    """The latest models of one call; the same object goes to Ray's store once."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401 - a module
        self._ray = ray
        self._kept: OrderedDict[int, tuple[Params, Stand]] = OrderedDict()

    def held(self, params: Params) -> Stand:
        """Return a model in Ray's store."""
        # the model is kept beside, which keeps its id from others
        held = self._kept.pop(id(params), None) or (params, Held(self._ray, params))
        self._kept[id(params)] = held
        if len(self._kept) > _MODELS:
            self._kept.popitem(last=False)
        return held[1]
