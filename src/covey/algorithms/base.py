"""What a strategy is: a way to start, to play a round, and to conclude.

Strategies are pure: they take a state and return the next one with the facts that a
ledger should remember. They read no clock, open no file and own no randomness.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from covey.aggregation import ClientUpdate
from covey.data.examples import Client
from covey.events import Event, RiskMeasured
from covey.membership import ShadowFederation
from covey.releases import fed
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "Cohort",
    "KnownRisk",
    "RoundResult",
    "SelectionHistory",
    "ServerState",
    "Strategy",
    "initial_state",
]

T = TypeVar("T")

Cohort = tuple[Client, ...]
"""The clients of one round, in name order; it may be empty."""


class KnownRisk(NamedTuple):
    """A risk that a client may act on: what was sent to it, or what it found itself.

    Attributes:
        round_index: the round before which it was measured.
        inside: whether the client was among the cluster's members at that time.
    """

    risk: float
    standard_error: float
    round_index: int
    inside: bool


@dataclass(frozen=True, slots=True)
class SelectionHistory:
    """What choices leave behind for later choices.

    Attributes:
        moved: the round of each client's latest move from one cluster to another.
        losses: each client's latest losses per cluster, smoothed or not, in nats.
        prices: the subsidy per cluster; empty before the first round with prices.
        risks: what each client found about each cluster by itself. It stays on the
            client's side; a simulation plays both.
    """

    moved: Mapping[Handle, int] = field(default_factory=dict[Handle, int])
    losses: Mapping[Handle, tuple[float, ...]] = field(
        default_factory=dict[Handle, tuple[float, ...]]
    )
    prices: tuple[float, ...] = ()
    risks: Mapping[Handle, tuple[KnownRisk | None, ...]] = field(
        default_factory=dict[Handle, tuple[KnownRisk | None, ...]]
    )


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """All that a server carries from one round to the next.

    Attributes:
        round_index: the next round to play.
        clusters: the cluster models theta_j.
        assignment: the latest choice of every client that has chosen.
        risk_estimates: per cluster, the valid risk figure, if there is one.
        shadows: per cluster, the shadow federations, if the red team keeps any.
        pooling: per cluster, the share by which its model was last pooled.
        selection_history: what earlier choices leave behind for later ones.
        releases: how many of the models belong to one cluster (`covey.releases`).
        waiting: per cluster, the rounds in a row in which it had too few clients to hide
            one among them; empty where no aggregation asks for that.
        closed: clusters that waited for too long: not offered.
        clips: per cluster, the largest L2 norm of an update in the next round; empty
            where no clip follows the updates.
        stalled: clusters whose clients' latest updates were all refused, because none of
            them was finite: training goes on, and nothing comes of it.
    """

    round_index: int
    clusters: tuple[Params, ...]
    assignment: Mapping[Handle, int]
    risk_estimates: tuple[RiskMeasured | None, ...]
    shadows: tuple[tuple[ShadowFederation, ...], ...]
    pooling: tuple[float, ...]
    selection_history: SelectionHistory = SelectionHistory()
    releases: int = 1
    waiting: tuple[int, ...] = ()
    closed: frozenset[int] = frozenset()
    clips: tuple[float, ...] = ()
    stalled: frozenset[int] = frozenset()

    def trained_by(self, handle: Handle) -> range:
        """Return the models that this client's update moves, by its latest choice."""
        return fed(self.assignment[handle], len(self.clusters), self.releases)

    def populated(self) -> tuple[bool, ...]:
        """Say which models somebody's latest choice trains; before the first one, all."""
        trained = {j for handle in self.assignment for j in self.trained_by(handle)}
        return tuple(not trained or j in trained for j in range(len(self.clusters)))

    def available(self) -> tuple[bool, ...]:
        """Say which models may be chosen: the inhabited ones, unless they are closed.

        Any other is trained by nobody, and its low risk protects nobody.
        """
        return tuple(
            somebody and j not in self.closed
            for j, somebody in enumerate(self.populated())
        )

    def known_risks(self, handle: Handle) -> tuple[KnownRisk | None, ...]:
        """Return what a client knows of each cluster: its own finding, or the figure."""
        measured = self.selection_history.risks.get(handle)
        if measured is not None:
            return measured
        return tuple(
            _known(f, self.assignment.get(handle)) for f in self.risk_estimates
        )

    def with_choices(self, choices: Mapping[Handle, int]) -> "ServerState":
        """Return the state after these clients' choices; who moved is remembered."""
        before = self.assignment
        movers = [h for h, j in choices.items() if before.get(h, j) != j]
        moved = {
            **self.selection_history.moved,
            **dict.fromkeys(movers, self.round_index),
        }
        return replace(
            self,
            assignment={**before, **choices},
            selection_history=replace(self.selection_history, moved=moved),
        )

    def without(self, left: Collection[Handle]) -> "ServerState":
        """Return the state with nothing in it that is kept on these clients."""
        history = self.selection_history
        return replace(
            self,
            assignment=_without(self.assignment, left),
            selection_history=replace(
                history,
                moved=_without(history.moved, left),
                losses=_without(history.losses, left),
                risks=_without(history.risks, left),
            ),
        )

    def with_models(self, clusters: tuple[Params, ...]) -> "ServerState":
        """Return the state after a round that ended in these models."""
        return replace(self, clusters=clusters, round_index=self.round_index + 1)


def _without(of: Mapping[Handle, T], left: Collection[Handle]) -> dict[Handle, T]:
    return {handle: value for handle, value in of.items() if handle not in left}


def _known(estimate: RiskMeasured | None, cluster: int | None) -> KnownRisk | None:
    if estimate is None or estimate.risk is None or estimate.standard_error is None:
        return None
    return KnownRisk(
        estimate.risk,
        estimate.standard_error,
        estimate.round_index,
        inside=estimate.cluster == cluster,
    )


def initial_state(clusters: tuple[Params, ...]) -> ServerState:
    """Return the state before the first round."""
    none = (None,) * len(clusters)
    return ServerState(
        0, clusters, {}, none, ((),) * len(clusters), (0.0,) * len(clusters)
    )


class RoundResult(NamedTuple):
    """A round's outcome: the next state, and the facts to remember before using it.

    Attributes:
        stored: the raw updates of the round, where they are to be kept.
    """

    state: ServerState
    events: tuple[Event, ...]
    stored: tuple[ClientUpdate, ...] = ()

    def preceded_by(self, events: tuple[Event, ...]) -> "RoundResult":
        """Return the same outcome, with facts that come first."""
        return self._replace(events=(*events, *self.events))


class Strategy(NamedTuple):
    """An algorithm of federated learning, as three pure functions.

    Attributes:
        init: the state before round 0.
        play_round: one round with this cohort.
        conclude: one last choice by every client, without training.
    """

    init: Callable[[Streams], ServerState]
    play_round: Callable[[ServerState, Cohort, Streams], RoundResult]
    conclude: Callable[[ServerState, Cohort, Streams], RoundResult]
