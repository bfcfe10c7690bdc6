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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor, nn

from covey.base.errors import ConfigError, EngineError
from covey.base.names import Params, __version__
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.engine.cpu import (
    ParallelEngine,
    Precision,
    RecordedJob,
    bundled,
    num_parameters,
    training_work,
    without_recording,
)
from covey.engine.dropout import check_dropout
from covey.engine.protocol import Scored, ScoringJob, TrainingJob
from covey.engine.recipe import MULTICLASS, Recipe, Task
from covey.models.build import frozen_params


class Packed(NamedTuple):
    """A tensor of any type that torch has; NumPy does not have them all."""

    data: UInt8[np.ndarray, " bytes"]
    dtype: torch.dtype
    shape: tuple[int, ...]


PackedParams = Mapping[str, Packed]


def pack(tensor: Shaped[Tensor, "..."]) -> Packed:
    """Return the tensor's bytes, in its own memory where it lies in one piece."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return Packed(flat.view(torch.uint8).numpy(), tensor.dtype, tuple(tensor.shape))


def unpack(packed: Packed, *, copy: bool = True) -> Shaped[Tensor, "..."]:
    """Return the tensor. What came from Ray may be written to in a copy only."""
    if packed.data.size == 0:  # torch views no array that is empty
        return torch.empty(packed.shape, dtype=packed.dtype)
    data = packed.data.copy() if copy else packed.data
    return torch.from_numpy(data).view(packed.dtype).reshape(packed.shape)


def pack_params(params: Params) -> PackedParams:
    """Return a model to be moved."""
    return {name: pack(value) for name, value in params.items()}


def unpack_params(packed: PackedParams, *, copy: bool = True) -> Params:
    """Return the model, its tensors in their order."""
    return {name: unpack(value, copy=copy) for name, value in packed.items()}


def unpack_examples(packed: Sequence[Packed]) -> Examples:
    """Return examples that lie where Ray keeps them; nobody may write to them."""
    inputs, labels = (unpack(each, copy=False) for each in packed)
    return Examples(inputs, labels)


Ref = Any
"""`ray.ObjectRef`: something that Ray keeps, and brings to a node that asks for it."""

SETUPS = 2
"""Engines that a host keeps; another one is made anew when it is asked for again."""


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


class Trained(NamedTuple):
    """A trained model, and the losses that somebody asks for."""

    params: PackedParams
    losses: Sequence[Packed]
    recorded: Sequence[Packed]


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

    def train(self, setup: Sequence[Ref], jobs: Sequence[SentTraining]) -> list[Trained]:
        """Return what each job comes to. `setup` is one reference."""
        known = _known(r for job in jobs for r in (job.start, job.examples, *job.memory.values()))
        here = [_training(job, known) for job in jobs]
        trained = self._engine(setup[0]).train(job for job, _, _ in here)
        return [
            Trained(pack_params(params), list(map(pack, losses)), list(map(pack, recorded)))
            for (_, losses, recorded), params in zip(here, trained, strict=True)
        ]

    def score(
        self, setup: Sequence[Ref], jobs: Sequence[tuple[Ref, Ref]]
    ) -> list[list[Packed | None]]:
        """Return the scores of each model on its examples. `setup` is one reference."""
        known = _known(ref for job in jobs for ref in job)
        here = [
            ScoringJob(unpack_params(known[params], copy=False), unpack_examples(known[examples]))
            for params, examples in jobs
        ]
        scored = self._engine(setup[0]).score(here)
        return [[None if each is None else pack(each) for each in one] for one in scored]

    def _engine(self, setup: Ref) -> ParallelEngine:
        with self._making:
            key = setup.hex()
            engine = self._engines.pop(key, None) or _known([setup])[setup](workers=self._workers)
            self._engines[key] = engine
            while len(self._engines) > SETUPS:
                self._engines.popitem(last=False)
            return engine


def _known(refs: Iterable[Ref]) -> dict[Ref, Any]:
    """Return what Ray keeps under these references, each asked for once."""
    import ray

    asked = list(dict.fromkeys(refs))
    return dict(zip(asked, ray.get(asked), strict=True))


def _training(
    sent: SentTraining, known: Mapping[Ref, Any]
) -> tuple[TrainingJob, list[Tensor], list[Tensor]]:
    """Return a job as it is trained here, and where its losses gather."""
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
    return watched.recorded if sent.is_recorded else job, losses, watched.batches


START_SECONDS = 120.0
"""For the processes of all nodes to start: each imports covey and torch."""

ANSWER_SECONDS = 10.0
"""For a cluster to take a connection: Ray itself would wait for minutes."""

CALLS_PER_THREAD = 2
"""Bundles on their way to a node, per thread of it: one in work and one that waits."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node's process.

    Attributes:
        name: Ray's, which nodes do not share.
        host: a handle of the `Host`.
        workers: its threads.
    """

    name: str
    host: Any
    workers: int

    @property
    def capacity(self) -> int:
        """How many bundles it is sent at once."""
        return CALLS_PER_THREAD * self.workers


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
        self.nodes = {name: self.nodes[name] for name in alive if name in self.nodes}
        starting = [
            _started(ray, name, self.workers or count)
            for name, count in alive.items()
            if name not in self.nodes
        ]
        for node in starting:
            if _has_started(ray, node):
                self.nodes[node.name] = node
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

    @property
    def capacity(self) -> int:
        """How many bundles are on their way at once."""
        return sum(node.capacity for node in self.nodes.values())


_SHARED: WeakValueDictionary[tuple[str, int], Hosts] = WeakValueDictionary()


def shared_hosts(address: str, workers: int) -> Hosts:
    """Return the nodes of a cluster; all engines of a program share their processes."""
    return _SHARED.setdefault((address, workers), Hosts(address, workers))


def library() -> Any:  # noqa: ANN401 - a module
    """Import Ray, which covey does not bring by itself.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"engine.name = 'ray' needs Ray, but: {error}. Install it: pip install 'covey[ray]'."
        ) from error


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
    # what Ray would tell its makers of a cluster that is started here
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
    asked: Ref = node.host.versions.remote()
    try:
        found = tuple(ray.get(asked, timeout=START_SECONDS))
    except ray.exceptions.GetTimeoutError:
        log.warning("Ray: node %s starts no process", node.name[:8])
        return False
    except ray.exceptions.RayError as error:
        if node.name not in _processors(ray):
            return False
        found = str(error)
    if found != versions():
        raise ConfigError(
            f"Every node of a Ray cluster must have covey and torch in the versions of "
            f"this machine, {versions()}, found on {node.name}: {found}. Install them "
            f"there, or start the node in an environment that has them."
        )
    return True


TRIES = 3
"""How often a bundle is sent before a run ends."""

Own = TypeVar("Own")


@dataclass(eq=False)
class _Sent(Generic[Own]):
    """A bundle on its way.

    Attributes:
        own: what its results are for.
        jobs: what is sent.
        tries: how often it was.
    """

    own: Own
    jobs: Sequence[Any]
    node: Node | None = None
    ref: Ref = None
    tries: int = 0


@dataclass(eq=False)
class _Dispatch(Generic[Own]):
    hosts: Hosts
    method: str
    setup: Ref
    on_the_way: deque[_Sent[Own]] = field(default_factory=deque)

    def send(self, sent: _Sent[Own]) -> None:
        """Send a bundle to the node that has the least to do for its size."""
        if not self.hosts.nodes:
            self.hosts.refresh()
        waiting = self._waiting()
        sent.node = min(
            self.hosts.nodes.values(), key=lambda node: waiting.get(node.name, 0) / node.workers
        )
        call = getattr(sent.node.host, self.method)
        sent.ref, sent.tries = call.remote([self.setup], sent.jobs), sent.tries + 1

    def first(self) -> tuple[Own, Sequence[Any]]:
        """Return the results of the bundle that was sent first."""
        sent = self.on_the_way[0]
        ray = library()
        while True:
            try:
                found = ray.get(sent.ref)
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):
                    raise cause from error
                self._send_again(sent.node, error)
            else:
                self.on_the_way.popleft()
                return sent.own, found

    def abandon(self) -> None:
        """Call back what nobody waits for any more; what has begun ends by itself."""
        ray = library()
        for sent in self.on_the_way:
            if ray.is_initialized():
                ray.cancel(sent.ref)

    def _waiting(self) -> dict[str, int]:
        """Return how many bundles each node has in hand."""
        sent = {each.ref: each.node for each in self.on_the_way if each.ref is not None}
        if not sent:
            return {}
        refs = list(sent)
        _, unfinished = library().wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        return Counter(node.name for ref in unfinished if (node := sent[ref]) is not None)

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
                self.send(sent)


def results_of(
    hosts: Hosts, method: str, setup: Ref, bundles: Iterable[tuple[Own, Sequence[Any]]]
) -> Iterator[tuple[Own, Sequence[Any]]]:
    """Yield, in order, every bundle with what the nodes made of it.

    Args:
        hosts: who work; refreshed beforehand.
        method: of the hosts.
        setup: what they work with.
        bundles: each with what is sent of it, taken as there is room.

    Raises:
        EngineError: a bundle was lost as often as it was sent.
    """
    dispatch: _Dispatch[Own] = _Dispatch(hosts, method, setup)
    try:
        for own, jobs in bundles:
            sent = _Sent(own, jobs)
            dispatch.send(sent)
            dispatch.on_the_way.append(sent)
            if len(dispatch.on_the_way) >= hosts.capacity:
                yield dispatch.first()
        while dispatch.on_the_way:
            yield dispatch.first()
    finally:
        dispatch.abandon()


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
        module: gives the architecture and what is frozen in it.
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
        # what makes the engine of a node, which has threads by the node
        self._setup = partial(ParallelEngine, module, precision=precision, task=task)
        self._setup_ref: Ref = None
        self._frozen = num_parameters(frozen_params(module))
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
            for bundle in bundled(
                jobs, lambda job: training_work(job, self._frozen), BUNDLE, BUNDLED_WORK
            )
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

        def work_of(job: ScoringJob) -> float:
            return float((num_parameters(job.params) + self._frozen) * len(job.examples))

        bundles = (
            (bundle, [(models.ref(job.params), self._placed(job.examples)) for job in bundle])
            for bundle in bundled(jobs, work_of, BUNDLE, BUNDLED_WORK)
        )
        found = results_of(self._hosts, "score", setup, bundles)
        return [
            Scored._make(None if each is None else unpack(each) for each in one)
            for _, scored in found
            for one in scored
        ]

    def _ready(self) -> Ref:
        """Return what nodes make their engines from, when all of them are there."""
        self._hosts.refresh()
        self._setup_ref = self._setup_ref or self._ray.put(self._setup)
        return self._setup_ref

    def _placed(self, examples: Examples) -> Ref:
        """Return where Ray keeps examples, for as long as somebody here has them."""
        ref = self._examples.get(examples)
        if ref is None:
            packed = pack(examples.inputs), pack(examples.labels)
            ref = self._examples[examples] = self._ray.put(packed)
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
        # the model is kept beside, which keeps its id from others
        kept = self._kept.pop(id(params), None) or (params, self._ray.put(pack_params(params)))
        self._kept[id(params)] = kept
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
