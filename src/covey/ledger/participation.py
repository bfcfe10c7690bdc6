"""Which clients took part in which rounds, sets and clusters, folded from a ledger's events."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from covey.base import events
from covey.base.events import Event
from covey.base.history import FINAL, SHARED
from covey.base.names import Handle


@dataclass(frozen=True, slots=True)
class AnonymitySet:
    """An anonymity set, as it was formed.

    Attributes:
        near: by member, who is within the largest distance that counts; None: anybody.
    """

    round_index: int
    cluster: int
    members: frozenset[Handle]
    diameter: float | None
    near: Mapping[Handle, frozenset[Handle]] | None = None

    def plausible_members(self, leaver: Handle, left: frozenset[Handle]) -> int:
        r"""Count the members to whom the set's update can still be attributed: |S \ L \ {u}|."""
        others = self.members if self.near is None else self.near[leaver]
        return len(others - left - {leaver})

    def members_left(self, left: frozenset[Handle]) -> int:
        r"""Count the members that stay, or who are near the member that has the fewest near.

        m = min over u in S of |near(u) \ L \ {u}|, and 1 more where u itself stays: once m - x
        more have left, whoever they are, each of S still has x to whom its update can be
        attributed.
        """
        if self.near is None:
            return len(self.members - left)
        return min(self.plausible_members(u, left) + (u not in left) for u in self.members)


@dataclass(frozen=True, slots=True)
class Participation:
    """Which client took part in which round, folded from the events.

    Attributes:
        sets: every anonymity set of every round.
        trained: by client, the rounds it trained in, and the cluster it trained.
        handed_out: rounds in which a user's own algorithm was handed clients, and which:
            whatever it made of them, no anonymity set hides it.
        left: who has left, in order, each once.
        stopped: those of them whose name stays, since they were answered with a stop.
        lingering: by client that left, a round that was played again with the choices
            that others had made in its presence, the first one.
    """

    sets: Sequence[AnonymitySet] = ()
    trained: Mapping[Handle, Mapping[int, int]] = field(
        default_factory=dict[Handle, Mapping[int, int]]
    )
    handed_out: Mapping[int, Collection[Handle]] = field(
        default_factory=dict[int, Collection[Handle]]
    )
    left: tuple[Handle, ...] = ()
    stopped: frozenset[Handle] = frozenset()
    lingering: Mapping[Handle, int] = field(default_factory=dict[Handle, int])

    def sets_of(self, handle: Handle) -> tuple[AnonymitySet, ...]:
        """Return the sets that held this client, oldest first."""
        return tuple(hidden for hidden in self.sets if handle in hidden.members)

    def first_handed_out(self, handle: Handle) -> int | None:
        """Return the first round in which a user's own algorithm was handed this client."""
        rounds = (t for t, handles in self.handed_out.items() if handle in handles)
        return min(rounds, default=None)

    def first_round(self, handle: Handle) -> int | None:
        """Return the first round that this client took part in."""
        return _first(*self.trained.get(handle, {}), self.first_handed_out(handle))

    def first_trace(self, handle: Handle) -> int | None:
        """Return the first round that is other than it would be without this client."""
        return _first(self.first_round(handle), self.lingering.get(handle))


def _first(*rounds: int | None) -> int | None:
    return min((t for t in rounds if t is not None), default=None)


def participation_of(current: Iterable[tuple[int | None, Event]]) -> Participation:
    """Fold the current events; rounds that were rolled back are left out."""
    sets: list[AnonymitySet] = []
    trained: dict[Handle, dict[int, int]] = {}
    handed_out: dict[int, Collection[Handle]] = {}
    left: dict[Handle, None] = {}
    stopped: set[Handle] = set()
    lingering: dict[Handle, int] = {}
    for round_index, event in current:
        match round_index, event:
            case None, events.ClientLeft(handle, answer):
                left[handle] = None
                stopped = stopped | {handle} if answer == "stop" else stopped - {handle}
            case None, events.RunRolledBack():
                # played anew, nothing of them is left; else what others chose beside them is
                first, anew = event.round_index, event.how == "anew"
                before = {handle: t for handle, t in lingering.items() if t < first}
                lingering = before if anew else dict.fromkeys(left, first) | before
            case int(t), events.AnonymitySetsFormed():
                sets += _formed(t, event)
            case int(t), events.ClientsAssigned(clusters, by) if by != FINAL:
                for handle, j in clusters.items():
                    trained.setdefault(handle, {})[t] = j
            case int(t), events.ClientsHandedOut(handles):
                handed_out[t] = frozenset(handles)
            case _:
                pass
    return Participation(
        sets=tuple(sets),
        trained=trained,
        handed_out=handed_out,
        left=tuple(left),
        stopped=frozenset(stopped),
        lingering=lingering,
    )


def _formed(t: int, event: events.AnonymitySetsFormed) -> Iterator[AnonymitySet]:
    for c, (members, diameter) in enumerate(zip(event.sets, event.diameters, strict=True)):
        near = None
        if event.near:
            near = dict(zip(members, map(frozenset, event.near[c]), strict=True))
        yield AnonymitySet(t, event.cluster, frozenset(members), diameter, near)


def latest_models(current: Iterable[tuple[int | None, Event]]) -> str | None:
    """Return the hash of the newest cluster models.

    None before the first round, and while a warm start trains one model for all clusters.
    """
    latest, shared, alone = None, False, False
    for _, event in current:
        match event:
            case events.RunStarted():
                alone = event.num_clusters == 1
            case events.ClientsAssigned(_, by) if by != FINAL:
                shared = by == SHARED
            case events.ModelsMerged() | events.ModelsPooled():
                latest = None if shared and not alone else event.model_hash
            case _:
                pass
    return latest


def latest_sums(current: Iterable[tuple[int | None, Event]]) -> events.HeadsSolved | None:
    """Return the newest sums that models were solved from; None: none were."""
    return ([None, *(event for _, event in current if isinstance(event, events.HeadsSolved))])[-1]
