"""Participation: which clients took part in which rounds, sets and clusters."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.events import (
    AnonymitySetsFormed,
    ClientLeft,
    ClientsAssigned,
    Event,
    HeadsSolved,
    ModelsMerged,
    ModelsPooled,
    OrganisationsAttested,
    PricesSet,
    RiskMeasured,
    RunRolledBack,
    RunStarted,
)
from covey.types import Handle

__all__ = [
    "AnonymitySet",
    "Participation",
    "latest_models",
    "latest_sums",
    "participation_of",
]

FINAL, SHARED = "final", "shared"
PUBLISHED: Mapping[type[Event], str] = {RiskMeasured: "risks", PricesSet: "prices"}


@dataclass(frozen=True, slots=True)
class AnonymitySet:
    """An anonymity set, as it was formed.

    Attributes:
        near: by member, who is within the largest distance that counts; None: anybody.
        organisations: of the members whose organisation is attested, which one it is among
            those of this set; None: nobody asks, and every member counts.
    """

    round_index: int
    cluster: int
    members: frozenset[Handle]
    diameter: float | None
    near: Mapping[Handle, frozenset[Handle]] | None = None
    organisations: Mapping[Handle, int] | None = None

    def plausible_members(self, leaver: Handle, left: frozenset[Handle]) -> int:
        r"""Count the remaining members to whom the set's update can be attributed.

        |S \ L \ {u}| or, with o(v) the attested organisation of v, as many different ones
        as there are beside the leaver's own: |{o(v) : v in S \ L} \ {o(u)}|.
        """
        others = self.members if self.near is None else self.near[leaver]
        return self.counted(others - left - {leaver}, leaver)

    def counted(self, members: Collection[Handle], leaver: Handle | None = None) -> int:
        """Count members: those of one organisation are one, the leaver's own is none."""
        known = self.organisations
        if known is None:
            return len(members)
        own = {known.get(leaver)} if leaver is not None else set[int | None]()
        return len({known[each] for each in members if each in known} - own)


@dataclass(frozen=True, slots=True)
class Participation:
    """Which client took part in which round, folded from the events.

    Attributes:
        sets: every anonymity set of every round.
        trained: by client, the rounds it trained in, and the cluster it trained.
        counted: by kind, the rounds in which something published came of everybody.
        left: who has left, in order, each once.
        lingering: by client that left, a round that was played again with the choices
            that others had made in its presence, the first one.
    """

    sets: tuple[AnonymitySet, ...] = ()
    trained: Mapping[Handle, Mapping[int, int]] = field(
        default_factory=dict[Handle, Mapping[int, int]]
    )
    counted: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict[str, tuple[int, ...]]
    )
    left: tuple[Handle, ...] = ()
    lingering: Mapping[Handle, int] = field(default_factory=dict[Handle, int])

    def sets_of(self, handle: Handle) -> tuple[AnonymitySet, ...]:
        """Return the sets that held this client, oldest first."""
        return tuple(each for each in self.sets if handle in each.members)

    def first_round(self, handle: Handle) -> int | None:
        """Return the first round that this client trained in."""
        return min(self.trained.get(handle, {}), default=None)

    def first_trace(self, handle: Handle) -> int | None:
        """Return the first round that is other than it would be without this client."""
        found = {*self.trained.get(handle, {}), self.lingering.get(handle)}
        return min((t for t in found if t is not None), default=None)


def participation_of(events: Iterable[tuple[int | None, Event]]) -> Participation:
    """Fold the current events; rounds that were rolled back are left out."""
    sets: list[AnonymitySet] = []
    trained: dict[Handle, dict[int, int]] = {}
    counted: dict[str, dict[int, None]] = {kind: {} for kind in PUBLISHED.values()}
    left: dict[Handle, None] = {}
    lingering: dict[Handle, int] = {}
    for round_index, event in events:
        match round_index, event:
            case None, ClientLeft(handle):
                left[handle] = None
            case None, RunRolledBack():
                lingering = _lingering(lingering, left, event)
            case int(t), AnonymitySetsFormed() | OrganisationsAttested():
                _note_sets(sets, t, event)
            case int(t), ClientsAssigned(clusters, by) if by != FINAL:
                for handle, j in clusters.items():
                    trained.setdefault(handle, {})[t] = j
            case int(t), RiskMeasured() | PricesSet():
                counted[PUBLISHED[type(event)]][t] = None
            case _:
                pass
    return Participation(
        sets=tuple(sets),
        trained=trained,
        counted={kind: tuple(rounds) for kind, rounds in counted.items()},
        left=tuple(left),
        lingering=lingering,
    )


def latest_models(events: Iterable[tuple[int | None, Event]]) -> str | None:
    """Return the hash of the newest cluster models.

    None before the first round, and while a warm start trains one model for all clusters.
    """
    found, shared, alone = None, False, False
    for _, event in events:
        match event:
            case RunStarted():
                alone = event.num_clusters == 1
            case ClientsAssigned(_, by) if by != FINAL:
                shared = by == SHARED
            case ModelsMerged() | ModelsPooled():
                found = None if shared and not alone else event.model_hash
            case _:
                pass
    return found


def latest_sums(events: Iterable[tuple[int | None, Event]]) -> HeadsSolved | None:
    """Return the newest sums that models were solved from; None: none were."""
    found = [event for _, event in events if isinstance(event, HeadsSolved)]
    return found[-1] if found else None


def _lingering(
    found: Mapping[Handle, int], left: Iterable[Handle], rewind: RunRolledBack
) -> dict[Handle, int]:
    """Return the first round that still shows the clients that left, after a replay.

    Played anew, nothing of them is left; else what the others chose beside them is.
    """
    first = rewind.round_index
    if rewind.how == "anew":
        return {handle: t for handle, t in found.items() if t < first}
    return {handle: min(first, found.get(handle, first)) for handle in left}


def _note_sets(
    sets: list[AnonymitySet],
    round_index: int,
    event: AnonymitySetsFormed | OrganisationsAttested,
) -> None:
    if isinstance(event, AnonymitySetsFormed):
        sets += _sets(round_index, event)
        return
    last = slice(-len(event.organisations), None)  # those that were formed just before
    sets[last] = map(_attested, sets[last], event.organisations)


def _attested(held: AnonymitySet, numbers: Sequence[int | None]) -> AnonymitySet:
    found = zip(sorted(held.members), numbers, strict=True)
    known = {handle: each for handle, each in found if each is not None}
    return replace(held, organisations=known)


def _sets(round_index: int, event: AnonymitySetsFormed) -> tuple[AnonymitySet, ...]:
    def near(c: int) -> dict[Handle, frozenset[Handle]] | None:
        if not event.near:
            return None
        return dict(zip(event.sets[c], map(frozenset, event.near[c]), strict=True))

    return tuple(
        AnonymitySet(
            round_index, event.cluster, frozenset(members), event.diameters[c], near(c)
        )
        for c, members in enumerate(event.sets)
    )
