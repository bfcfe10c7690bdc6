"""Clusters that wait for more clients, and clusters that nobody chooses any more."""

from collections.abc import Sequence

from covey.algorithms.base import ServerState, Waiting
from covey.events import ClusterAbandoned, ClustersCollapsed, ClusterWaited, Event

__all__ = ["abandonment_events", "with_waiting_counts"]


def with_waiting_counts(
    state: ServerState, events: Sequence[Event], trained: Sequence[int], patience: int
) -> ServerState:
    """Count the rounds that each cluster has waited in a row, and close the impatient.

    A round in which nobody trained it counts neither way. A closed cluster is not
    offered, so that its clients take their next best. The last one that is left is never
    closed.
    """
    waits = {event.cluster for event in events if isinstance(event, ClusterWaited)}
    before = state.kept(Waiting).rounds or (0,) * len(state.clusters)
    waiting = tuple(
        n + 1 if j in waits else 0 if trained[j] else n for j, n in enumerate(before)
    )
    inhabited = frozenset(j for j, some in enumerate(state.populated()) if some)
    closed = frozenset(j for j in inhabited if waiting[j] >= patience)
    if closed == inhabited:
        closed = frozenset[int]()
    return state.keeping(Waiting(rounds=waiting, closed=closed))


def abandonment_events(before: ServerState, after: ServerState) -> tuple[Event, ...]:
    """Return what became of the clusters that nobody chooses any more."""
    was, now = before.populated(), after.populated()
    gone = [j for j in range(len(now)) if was[j] and not now[j]]
    events: list[Event] = [ClusterAbandoned(j) for j in gone]
    left = {j for j, some in enumerate(now) if some}
    if gone and len(left) == 1:
        events.append(ClustersCollapsed(left.pop()))
    return tuple(events)
