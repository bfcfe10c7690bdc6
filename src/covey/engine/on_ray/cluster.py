"""The nodes of a Ray cluster, with one `Host` on each that has processors."""

import logging
import os
import socket
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

from covey.engine.on_ray.host import Host, Ref, versions
from covey.errors import ConfigError

__all__ = ["Hosts", "Node", "library", "shared_hosts"]

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
            f"engine.name = 'ray' needs Ray, but: {error}. Install it: pip install "
            f"'covey[ray]'."
        ) from error


def _connected(address: str) -> Any:  # noqa: ANN401 - a module
    """Return Ray, connected; a program that is connected already stays so."""
    if address.startswith("ray://"):
        raise ConfigError(
            f"engine.options.address must be that of a cluster to which this machine "
            f"belongs, 'auto' or 'host:port', found {address!r}, which is for clients "
            f"outside. Run covey on a node of the cluster."
        )
    ray = library()
    if not ray.is_initialized():
        _connect(ray, address or os.environ.get("RAY_ADDRESS") or "local")
    return ray


def _connect(ray: Any, address: str) -> None:  # noqa: ANN401 - a module
    # what Ray would tell its makers of a cluster that is started here
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    here: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        _check_answers(address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice about later versions of Ray
            ray.init(address, log_to_driver=False, logging_level="ERROR", **here)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"engine.name = 'ray' needs a cluster at {address!r}, but: {error}. Start "
            f"one (ray start --head), correct engine.options.address or RAY_ADDRESS, or "
            f"leave both out for one on this machine."
        ) from error


def _check_answers(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()


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
