"""The nodes of a Ray cluster: a process on each, which trains and scores by the parallel engine.

What is large lies in Ray's store, which holds it once per node.
"""

import logging
import os
import socket
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from covey import ConfigError, Examples, Params, Scored, ScoringJob, TrainingJob, __version__
from covey.base.names import how_to_install
from covey.engine.cpu import ParallelEngine

Ref = Any
"""`ray.ObjectRef`: something that Ray keeps, and sends to a node that needs it."""

CALLS_PER_THREAD = 2
"""Bundles on their way to a node, per thread of it: one in work and one that waits."""

_SETUPS = 2
"""Engines that a host keeps; another one is made anew when it is needed again."""

_START_SECONDS = 120.0
"""For the processes of all nodes to start: each imports covey and torch."""

_ANSWER_SECONDS = 10.0
"""For a cluster to take a connection: Ray itself would wait for minutes."""

_log = logging.getLogger("covey.ray")


def library() -> Any:  # noqa: ANN401 - a module
    """Import Ray, which covey does not bring by itself.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"engine.name = 'ray' needs Ray, found none ({error}): {how_to_install('ray')}."
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
            while len(self._engines) > _SETUPS:
                self._engines.popitem(last=False)
            return engine


class RayNode(NamedTuple):
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
    nodes: dict[str, RayNode] = field(default_factory=dict[str, RayNode])

    def refresh(self) -> None:
        """Connect where that is not done, and start a process on every node without.

        Raises:
            ConfigError: there is no cluster, none of its nodes has processors, or one of
                them has another covey or none.
        """
        ray = _connected(self.address)
        processors = _processors(ray)
        known = self.nodes
        starting = [
            _started(ray, name, self.workers or count)
            for name, count in processors.items()
            if name not in known
        ]
        self.nodes = {name: known[name] for name in processors if name in known}
        self.nodes |= {node.name: node for node in starting if _has_started(ray, node)}
        if not self.nodes:
            raise ConfigError(
                f"engine.name = 'ray' needs a node with processors that starts in "
                f"{_START_SECONDS:.0f} s, found none of {len(processors)}: look at `ray status`, "
                f"or take another engine."
            )

    def lose(self, node: RayNode) -> None:
        """Go on without a node, and end its process if it is still there."""
        ray = library()
        if self.nodes.pop(node.name, None) is not None:
            _log.warning("Ray: lost node %s; its clients train again", node.name[:8])
        with suppress(ray.exceptions.RayError):
            ray.kill(node.host)


_SHARED: WeakValueDictionary[tuple[str, int], Hosts] = WeakValueDictionary()
"""By address and number of workers."""


def shared_hosts(address: str, workers: int) -> Hosts:
    """Return the nodes of this address, whose processes all engines of a program share."""
    return _SHARED.setdefault((address, workers), Hosts(address, workers))


def _connected(address: str) -> Any:  # noqa: ANN401 - a module
    """Return Ray, connected; a program that is connected already stays so."""
    if address.startswith("ray://"):
        raise ConfigError(
            f"engine.address must be 'auto' or 'host:port' of a cluster that this machine is in, "
            f"found {address!r}: run covey on a node of the cluster."
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
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice about later versions of Ray
            ray.init(address, log_to_driver=False, logging_level="ERROR", **here)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"engine.name = 'ray' needs a cluster at {address!r}, found {error}: start one (ray "
            f"start --head), correct engine.address or RAY_ADDRESS, or leave both out for one here."
        ) from error
    return ray


def _processors(ray: Any) -> dict[str, int]:  # noqa: ANN401 - a module
    """Return how many processors each node offers that is alive and offers any."""
    nodes: Sequence[Any] = [node for node in ray.nodes() if node["Alive"]]
    offered = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes}
    return {name: count for name, count in sorted(offered.items()) if count > 0}


def _started(ray: Any, name: str, workers: int) -> RayNode:  # noqa: ANN401 - a module
    """Return a process on this node that may not have begun yet.

    It reserves no processors: a second engine in this program must not wait for ever.
    """
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    host = ray.remote(Host).options(
        num_cpus=0,
        max_concurrency=CALLS_PER_THREAD * workers,
        scheduling_strategy=strategy(name, soft=False),
    )
    return RayNode(name, host.remote(workers), workers)


def _has_started(ray: Any, node: RayNode) -> bool:  # noqa: ANN401 - a module
    """Say whether a process begins to work, and not its node is lost meanwhile.

    Raises:
        ConfigError: the node has another covey or none.
    """
    try:
        versions_there = tuple(ray.get(node.host.versions.remote(), timeout=_START_SECONDS))
    except ray.exceptions.GetTimeoutError:
        _log.warning("Ray: node %s starts no process", node.name[:8])
        return False
    except ray.exceptions.RayError as error:
        if node.name not in _processors(ray):
            return False
        versions_there = str(error)
    if versions_there != versions():
        raise ConfigError(
            f"Every Ray node must have this machine's covey and torch, {versions()}, found "
            f"{versions_there} on {node.name}: install them, or start it where they are."
        )
    return True
