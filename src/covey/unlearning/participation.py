"""Participation: which clients took part in which rounds, sets and clusters."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from covey.events import (
    AnonymitySetsFormed,
    ClientLeft,
    ClientsAssigned,
    ClientsHandedOut,
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
from covey.unlearning.participation_index import (
    AnonymitySet,
    FormedSets,
    TrainedRounds,
)

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
class Participation:
    """Which client took part in which round, folded from the events.

    Attributes:
        sets: every anonymity set of every round.
        trained: by client, the rounds it trained in, and the cluster it trained.
        handed_out: rounds in which a user's own algorithm was handed clients, and which:
            whatever it made of them, no anonymity set hides it.
        counted: by kind, the rounds in which something published came of everybody.
        left: who has left, in order, each once.
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
    counted: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict[str, tuple[int, ...]]
    )
    left: tuple[Handle, ...] = ()
    lingering: Mapping[Handle, int] = field(default_factory=dict[Handle, int])

    def sets_of(self, handle: Handle) -> tuple[AnonymitySet, ...]:
        """Return the sets that held this client, oldest first."""
        if isinstance(self.sets, FormedSets):
            return self.sets.of(handle)
        return tuple(each for each in self.sets if handle in each.members)

    def first_handed_out(self, handle: Handle) -> int | None:
        """Return the first round in which a user's own algorithm was handed this client."""
        rounds = (t for t, handles in self.handed_out.items() if handle in handles)
        return min(rounds, default=None)

    def first_round(self, handle: Handle) -> int | None:
        """Return the first round that this client took part in."""
        found = {*self.trained.get(handle, {}), self.first_handed_out(handle)}
        return min((t for t in found if t is not None), default=None)

    def first_trace(self, handle: Handle) -> int | None:
        """Return the first round that is other than it would be without this client."""
        found = {self.first_round(handle), self.lingering.get(handle)}
        return min((t for t in found if t is not None), default=None)


def participation_of(  # noqa: C901, PLR0912 - one line per kind of event
    events: Iterable[tuple[int | None, Event]],
) -> Participation:
    """Fold the current events; rounds that were rolled back are left out."""
    sets = FormedSets()
    chosen: list[tuple[int, Mapping[Handle, int]]] = []
    handed_out: dict[int, Collection[Handle]] = {}
    counted: dict[str, dict[int, None]] = {kind: {} for kind in PUBLISHED.values()}
    left: dict[Handle, None] = {}
    lingering: dict[Handle, int] = {}
    for round_index, event in events:
        match round_index, event:
            case None, ClientLeft(handle):
                left[handle] = None
            case None, RunRolledBack():
                lingering = _lingering(lingering, left, event)
            case int(t), AnonymitySetsFormed():
                sets.add(t, event)
            case int(), OrganisationsAttested(_, organisations):
                sets.attest(organisations)
            case int(t), ClientsAssigned(clusters, by) if by != FINAL:
                chosen.append((t, clusters))
            case int(t), ClientsHandedOut(handles):
                handed_out[t] = frozenset(handles)
            case int(t), RiskMeasured() | PricesSet():
                counted[PUBLISHED[type(event)]][t] = None
            case _:
                pass
    return Participation(
        sets=sets.indexed(),
        trained=TrainedRounds(chosen),
        handed_out=handed_out,
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
