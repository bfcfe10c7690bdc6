"""What a server carries from round to round, and what comes of a round."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from covey.aggregation import ClientUpdate
from covey.components.state import (
    ComponentState,
    States,
    in_order,
    keep,
    kept,
    without,
)
from covey.data.examples import Client
from covey.events import Event
from covey.membership import RiskEstimate
from covey.types import Handle, Params

__all__ = [
    "Cohort",
    "OwnRisks",
    "RiskEstimates",
    "RoundResult",
    "ServerState",
    "Waiting",
    "initial_state",
]

S = TypeVar("S", bound=ComponentState)

Cohort = tuple[Client, ...]
"""The clients of one round, in name order; it may be empty."""


class RiskEstimates(ComponentState):
    """What the red team knows: per cluster a valid estimate, if there is one."""

    key = "risk-estimates"
    estimates: tuple[RiskEstimate | None, ...] = ()


class OwnRisks(ComponentState):
    """What each client found about each cluster by itself.

    It stays on the client's side; a simulation plays both.
    """

    key = "own-risks"
    risks: Mapping[Handle, tuple[RiskEstimate | None, ...]] = {}


class Waiting(ComponentState):
    """Clusters with too few clients to hide one among them.

    Attributes:
        rounds: per cluster, how many it has waited in a row.
        closed: clusters that waited for too long: not available.
    """

    key = "waiting"
    rounds: tuple[int, ...] = ()
    closed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """All that a server carries from one round to the next.

    Attributes:
        round_index: the next round to play.
        clusters: the cluster models theta_j.
        assignment: the latest choice of every client that has chosen, in order of handles.
        states: what algorithm and components keep beside that, each its own.
    """

    round_index: int
    clusters: tuple[Params, ...]
    assignment: Mapping[Handle, int]
    states: States = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        object.__setattr__(self, "assignment", in_order(self.assignment))

    def kept(self, kind: type[S]) -> S:
        """Return what a component keeps; its defaults, if that is nothing yet."""
        return kept(self.states, kind)

    def keeping(self, *states: ComponentState) -> "ServerState":
        """Return the state in which components keep these."""
        found = self.states
        for each in states:
            found = keep(found, each)
        return replace(self, states=found)

    def populated(self) -> tuple[bool, ...]:
        """Say which models somebody's latest choice trains; before the first one, all."""
        trained = set(self.assignment.values())
        return tuple(not trained or j in trained for j in range(len(self.clusters)))

    def available(self) -> tuple[bool, ...]:
        """Say which models may be chosen: the populated ones, unless they are closed.

        Any other is trained by nobody, and its low risk protects nobody.
        """
        closed = self.kept(Waiting).closed
        return tuple(
            somebody and j not in closed for j, somebody in enumerate(self.populated())
        )

    def risk_estimates(self) -> tuple[RiskEstimate | None, ...]:
        """Return each cluster's valid risk estimate, if there is one."""
        return self.kept(RiskEstimates).estimates or (None,) * len(self.clusters)

    def known_risks(self, handle: Handle) -> tuple[RiskEstimate | None, ...]:
        """Return what a client knows of each cluster: its own finding, or the estimate."""
        measured = self.kept(OwnRisks).risks.get(handle)
        if measured is not None:
            return measured
        cluster = self.assignment.get(handle)
        return tuple(
            each and each.known(inside=j == cluster)
            for j, each in enumerate(self.risk_estimates())
        )

    def with_choices(self, choices: Mapping[Handle, int]) -> "ServerState":
        """Return the state after these clients' choices."""
        return replace(self, assignment={**self.assignment, **choices})

    def without(self, left: Collection[Handle]) -> "ServerState":
        """Return the state with nothing in it that is kept on these clients."""
        stay = {h: j for h, j in self.assignment.items() if h not in left}
        return replace(self, assignment=stay, states=without(self.states, left))

    def with_models(self, clusters: tuple[Params, ...]) -> "ServerState":
        """Return the state after a round that ended in these models."""
        return replace(self, clusters=clusters, round_index=self.round_index + 1)


def initial_state(clusters: tuple[Params, ...]) -> ServerState:
    """Return the state before the first round."""
    return ServerState(0, clusters, {})


class RoundResult(NamedTuple):
    """A round's outcome: the next state, and the facts to remember before using it.

    Attributes:
        stored: the raw updates of the round, where they are to be kept.
        losses: of each client's training, as far as a simulation knows them. They are told
            while a run is played, and recorded nowhere.
    """

    state: ServerState
    events: tuple[Event, ...]
    stored: tuple[ClientUpdate, ...] = ()
    losses: Mapping[Handle, float] = MappingProxyType({})

    def preceded_by(self, events: tuple[Event, ...]) -> "RoundResult":
        """Return the same outcome, with facts that come first."""
        return self._replace(events=(*events, *self.events))
