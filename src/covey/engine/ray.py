"""The engine for several machines: clients on the nodes of a Ray cluster.

Every node runs the parallel engine's loop, so the results are those of the parallel
engine, whichever node computed them. Clients' examples stay in Ray's store, which holds
them once per node; models are put there once per call.
"""

import logging
import os
import socket
import threading
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn

from covey.base.errors import ConfigError, EngineError
from covey.base.names import Params, __version__, how_to_install
from covey.data.examples import Examples
from covey.engine.cpu import ParallelEngine, Precision, bundled, num_parameters, training_work
from covey.engine.dropout import check_dropout
from covey.engine.protocol import Scored, ScoringJob, TrainingJob
from covey.engine.recipe import MULTICLASS, Task
from covey.models.build import frozen_params

Ref = Any
"""`ray.ObjectRef`: something that Ray keeps, and sends to a node that needs it."""

Stand = Any
"""A `Held`, in the place of what it holds."""

SETUPS = 2
"""Engines that a host keeps; another one is made anew when it is needed again."""

START_SECONDS = 120.0
"""For the processes of all nodes to start: each imports covey and torch."""

ANSWER_SECONDS = 10.0
"""For a cluster to take a connection: Ray itself would wait for minutes."""

CALLS_PER_THREAD = 2
"""Bundles on their way to a node, per thread of it: one in work and one that waits."""

TRIES = 3
"""How often a bundle is sent before a run ends."""

BUNDLE = 32
"""Jobs that go to a node at once, at most."""

BUNDLED_WORK = 1e7
"""Parameters times examples of a bundle: what takes well longer than to send it."""

MODELS = 16
"""Models of a call that stay in Ray's store: as many as a run usually has clusters."""

log = logging.getLogger(__name__)


def library() -> Any:  # noqa: ANN401 - a module
    """Import Ray, which covey does not bring by itself.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"engine.name = 'ray' needs Ray, but: {error}. Install it: {how_to_install('ray')}."
        ) from error


class Held:
    """Something in Ray's store. What it is sent in arrives with the thing in its place.

    Args:
        ray: the module.
        thing: its tensors are copied, not all that they are views of.
    """

    def __init__(self, ray: Any, thing: Examples | Params) -> None:  # noqa: ANN401
        self.ref: Ref = ray.put(
            Examples(thing.inputs.clone(), thing.labels.clone())
            if isinstance(thing, Examples)
            else {name: value.detach().clone() for name, value in thing.items()}
        )

    def __reduce__(self) -> tuple[Callable[[Ref], Any], tuple[Ref]]:
        return library().get, (self.ref,)


def versions() -> tuple[str, str]:
    """Return what must be alike on all nodes: the versions of covey and torch."""
    return __version__, torch.__version__.partition("+")[0]


class Host:
    """One per node. Calls come in parallel: their jobs share the threads.

    Args:
        workers: threads.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._engines: OrderedDict[str, ParallelEngine] = OrderedDict()
        self._making = threading.Lock()

    def versions(self) -> tuple[str, str]:
        """Return the versions of covey and torch here."""
        return versions()

    def train(
        self, setup: Sequence[Ref], jobs: Sequence[tuple[TrainingJob, bool]]
    ) -> list[tuple[Params, list[Tensor]]]:
        """Return what each job comes to, and losses where they are wanted.

        `setup` is one reference.
        """
        losses: list[list[Tensor]] = [[] for _ in jobs]
        here = [
            replace(job, on_losses=own.extend) if wants_losses else job
            for (job, wants_losses), own in zip(jobs, losses, strict=True)
        ]
        return list(zip(self._engine(setup[0]).train(here), losses, strict=True))

    def score(self, setup: Sequence[Ref], jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return the scores of each model on its examples. `setup` is one reference."""
        return self._engine(setup[0]).score(jobs)

    def _engine(self, setup: Ref) -> ParallelEngine:
        with self._making:
            key = setup.hex()
            engine = self._engines.pop(key, None) or library().get(setup)(workers=self._workers)
            self._engines[key] = engine
            while len(self._engines) > SETUPS:
                self._engines.popitem(last=False)
            return engine


class Node(NamedTuple):
    """A node's process.

    Attributes:
        name: Ray's, which nodes do not share.
        host: a handle of the `Host`.
        workers: its threads.
    """

    name: str
    host: Any
    workers: int


@dataclass(eq=False)
class Hosts:
    """The nodes that are in use; a process ends with the last that has it.

    Attributes:
        address: of the cluster; "": `RAY_ADDRESS`, else one that is started here.
        workers: threads per node; 0: one for each of its processors.
    """

    address: str = ""
    workers: int = 0
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])

    def refresh(self) -> None:
        """Connect where that is not done, and start a process on every node without.

        Raises:
            ConfigError: there is no cluster, none of its nodes has processors, or one of
                them has another covey or none.
        """
        ray = _connected(self.address)
        alive = _processors(ray)
        known = self.nodes
        starting = [
            _started(ray, name, self.workers or count)
            for name, count in alive.items()
            if name not in known
        ]
        self.nodes = {name: known[name] for name in alive if name in known}
        self.nodes |= {node.name: node for node in starting if _has_started(ray, node)}
        if not self.nodes:
            raise ConfigError(
                f"engine.name = 'ray' needs a cluster with a node that has processors "
                f"and starts a process within {START_SECONDS:.0f} s, found none among "
                f"{len(alive)}. Look at `ray status`, or choose another engine.name."
            )

    def lose(self, node: Node) -> None:
        """Go on without a node, and end its process if it is still there."""
        ray = library()
        if self.nodes.pop(node.name, None) is not None:
            log.warning("Ray: lost node %s; its clients train again", node.name[:8])
        with suppress(ray.exceptions.RayError):
            ray.kill(node.host)


_SHARED: WeakValueDictionary[tuple[str, int], Hosts] = WeakValueDictionary()
"""By address and number of workers: all engines of a program share their processes."""


def _connected(address: str) -> Any:  # noqa: ANN401 - a module
    """Return Ray, connected; a program that is connected already stays so."""
    if address.startswith("ray://"):
        raise ConfigError(
            f"engine.address must be that of a cluster to which this machine "
            f"belongs, 'auto' or 'host:port', found {address!r}, which is for clients "
            f"outside. Run covey on a node of the cluster."
        )
    ray = library()
    if ray.is_initialized():
        return ray
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    # what Ray would report to its makers of a cluster that is started here
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    here: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    host, colon, port = address.rpartition(":")
    try:
        if colon:
            socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice about later versions of Ray
            ray.init(address, log_to_driver=False, logging_level="ERROR", **here)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"engine.name = 'ray' needs a cluster at {address!r}, but: {error}. Start "
            f"one (ray start --head), correct engine.address or RAY_ADDRESS, or "
            f"leave both out for one on this machine."
        ) from error
    return ray


def _processors(ray: Any) -> dict[str, int]:  # noqa: ANN401 - a module
    """Return how many processors each node offers that is alive and offers any."""
    alive: Sequence[Any] = [node for node in ray.nodes() if node["Alive"]]
    offered = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in alive}
    return {name: count for name, count in sorted(offered.items()) if count > 0}


def _started(ray: Any, name: str, workers: int) -> Node:  # noqa: ANN401 - a module
    """Return a process on this node that may not have begun yet.

    It reserves no processors: a second engine in this program must not wait for ever.
    """
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    there = ray.remote(Host).options(
        num_cpus=0,
        max_concurrency=CALLS_PER_THREAD * workers,
        scheduling_strategy=strategy(name, soft=False),
    )
    return Node(name, there.remote(workers), workers)


def _has_started(ray: Any, node: Node) -> bool:  # noqa: ANN401 - a module
    """Say whether a process begins to work, and not its node is lost meanwhile.

    Raises:
        ConfigError: the node has another covey or none.
    """
    try:
        versions_there = tuple(ray.get(node.host.versions.remote(), timeout=START_SECONDS))
    except ray.exceptions.GetTimeoutError:
        log.warning("Ray: node %s starts no process", node.name[:8])
        return False
    except ray.exceptions.RayError as error:
        if node.name not in _processors(ray):
            return False
        versions_there = str(error)
    if versions_there != versions():
        raise ConfigError(
            f"Every node of a Ray cluster must have covey and torch in the versions of "
            f"this machine, {versions()}, found on {node.name}: {versions_there}. Install them "
            f"there, or start the node in an environment that has them."
        )
    return True


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
    node: Node | None = None
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
        by_ref = {each.ref: each.node for each in self.on_the_way if each.ref is not None}
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

    def _send_again(self, lost: Node | None, reason: Exception) -> None:
        """Send all that a lost node had to do to others.

        Raises:
            EngineError: something was sent often enough.
        """
        if lost is not None:
            self.hosts.lose(lost)
        for sent in self.on_the_way:
            if sent.node is lost:
                if sent.tries >= TRIES:
                    raise EngineError(
                        f"A node of the Ray cluster must finish some clients' work in "
                        f"{TRIES} tries, and each was lost, at last because: {reason} "
                        f"Look at the nodes' memory and `ray status`, and resume the run."
                    ) from reason
                sent.ref = None
        for sent in self.on_the_way:
            if sent.ref is None:
                self._send(sent)


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
        self._hosts = _SHARED.setdefault((address, workers), Hosts(address, workers))
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
                memory={key: models.held(kept) for key, kept in job.memory.items()},
                on_losses=None,
            ), job.on_losses is not None

        work_of = partial(training_work, frozen=self._frozen)
        bundles = bundled(jobs, work_of, BUNDLE, BUNDLED_WORK)
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

        bundles = bundled(jobs, work_of, BUNDLE, BUNDLED_WORK)
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
        kept = self._kept.pop(id(params), None) or (params, Held(self._ray, params))
        self._kept[id(params)] = kept
        if len(self._kept) > MODELS:
            self._kept.popitem(last=False)
        return kept[1]
