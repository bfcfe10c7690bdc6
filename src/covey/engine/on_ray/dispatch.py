"""Bundles of jobs on their way to nodes: a few at a time; what is lost is sent again."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from covey.engine.on_ray.cluster import Hosts, Node, library
from covey.engine.on_ray.host import Ref
from covey.errors import EngineError

__all__ = ["TRIES", "results_of"]

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
            self.hosts.nodes.values(),
            key=lambda node: waiting.get(node.name, 0) / node.workers,
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
                if isinstance(cause, Exception) and not _is_of_ray(ray, cause):
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
        _, unfinished = library().wait(
            list(sent), num_returns=len(sent), timeout=0, fetch_local=False
        )
        found: dict[str, int] = {}
        for ref in unfinished:
            node = sent[ref]
            if node is not None:
                found[node.name] = found.get(node.name, 0) + 1
        return found

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
    hosts: Hosts,
    method: str,
    setup: Ref,
    bundles: Iterable[tuple[Own, Sequence[Any]]],
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


def _is_of_ray(ray: Any, error: Exception) -> bool:  # noqa: ANN401 - a module
    return isinstance(error, ray.exceptions.RayError)
