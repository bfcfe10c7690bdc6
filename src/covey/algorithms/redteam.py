"""Who looks at an algorithm's cluster models before clients choose among them.

A red team's figures are sent to everybody; what clients find by themselves stays theirs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol, runtime_checkable

from covey.algorithms.round import divergences
from covey.algorithms.state import Cohort, OwnRisks, RiskEstimates, RoundResult, ServerState
from covey.base.component_state import with_state
from covey.base.events import Event, ModelDiverged, RiskMeasured, SharesPerturbed
from covey.base.figure import RiskEstimate
from covey.base.names import Handle
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.membership.estimators import CountAll, count_of_counts
from covey.membership.truth import Assessment, RedTeam, SelfAssessment, Target, has_finite_examples
from covey.secure_sums.noise import NoiseShares


def estimate_lifetime(every: int) -> int:
    """Return for how many rounds a figure counts: one measurement may fail."""
    return 2 * every


@runtime_checkable
class RiskMeasurement(Protocol):
    """Who looks at cluster models before clients choose among them."""

    def measured(
        self, state: ServerState, cohort: Cohort, streams: Streams, *, last: bool = False
    ) -> RoundResult:
        """Return the state with what is known of the models now, and the facts of it.

        Args:
            state: before the round.
            cohort: of the round.
            streams: of the round.
            last: whether it is the last choice of a run, for which all is measured anew.
        """
        ...


@dataclass(frozen=True, slots=True)
class RedTeamed:
    """Measure every cluster's risk each `every` rounds, before the clients choose.

    Lines 4-7 of Algorithm 1. Nothing is measured before somebody has chosen a cluster;
    a figure is valid for 2 * every rounds, and one that is withheld is no figure. Of a model
    that diverged the older ones are void too.

    Attributes:
        attack: the red team.
        every: after how many rounds it measures.
        members: the clients of whom models are attacked, by handle.
        count: asks the members of all clusters at once for counts, should it need them.
        source: its name.
        divergence: says why a model is none; "" where it is one.
        shares: the noise that clients add to their counts; None: none, or they count none.
    """

    attack: RedTeam
    every: int
    members: Mapping[Handle, Client]
    count: CountAll | None = None
    source: str = ""
    divergence: Callable[[Target], str] = attrgetter("diverged")
    shares: NoiseShares | None = None

    def measured(
        self, state: ServerState, cohort: Cohort, streams: Streams, *, last: bool = False
    ) -> RoundResult:
        """Attack every cluster's model where that is due."""
        del cohort
        due = state.round_index > 0 and state.round_index % self.every == 0 and state.assignment
        attacked = self._attacked(state, streams) if due or last else RoundResult(state, ())
        valid = _valid(attacked.state.risk_estimates(), attacked.state, self.every)
        return attacked._replace(state=attacked.state.with_state(RiskEstimates(estimates=valid)))

    def look(self, target: Target, streams: Streams) -> Assessment:
        """Attack one model, unless it is none."""
        why = self.divergence(target)
        void = Assessment(RiskEstimate.of_diverged(why))
        assessed = void if why else self.attack(target, streams)
        source = self.source or assessed.estimate.source
        estimate = replace(assessed.estimate, source=source, round_index=target.round_index)
        return assessed._replace(estimate=estimate)

    def _attacked(self, state: ServerState, streams: Streams) -> RoundResult:
        states, events = state.states, list[Event]()
        estimates = list(state.risk_estimates())

        def at(j: int) -> Streams:
            return streams.at("red team", j)

        attacked = targets(state, self.members)
        if self.count is not None:
            counts = self.count(attacked, at)
            attacked = [replace(t, counts=c) for t, c in zip(attacked, counts, strict=True)]
        for target in attacked:
            j = target.cluster
            estimate, new_state = self.look(replace(target, states=states), at(j))
            states = states if new_state is None else with_state(states, new_state)
            if estimate.diverged:
                events.append(ModelDiverged(j, estimate.round_index, estimate.diverged))
                estimates[j] = None
            elif shares := self.shares:  # whatever came of their counts, they may have been opened
                z = shares.effective_multiplier(count_of_counts(shares) - 1)
                events.append(SharesPerturbed("counts", j, shares.bound, z, shares.honest))
            events.append(RiskMeasured(j, estimate))
            if estimate.counts:  # else the older one, while it is valid
                estimates[j] = estimate
        known = RiskEstimates(estimates=tuple(estimates))
        return RoundResult(replace(state, states=states).with_state(known), tuple(events))


@dataclass(frozen=True, slots=True)
class SelfAssessed:
    """Let each client measure, each `every` rounds, the models that it receives.

    What a client measures of a model that it does not train shows what this model remembers
    of it now, and not what it would know of a member. So an estimate from inside a cluster
    is not replaced by one from outside as long as it is valid.

    Attributes:
        assess: how a client measures.
        every: after how many rounds it does.
    """

    assess: SelfAssessment
    every: int

    def measured(
        self, state: ServerState, cohort: Cohort, streams: Streams, *, last: bool = False
    ) -> RoundResult:
        """Let those measure for whom that is due."""
        due = cohort if last else due_to_measure(state, cohort, self.every)
        estimates = self.assess(state.clusters, due if state.assignment else (), streams)
        return RoundResult(with_own_estimates(state, estimates, self.every), ())


def due_to_measure(state: ServerState, cohort: Cohort, every: int) -> Cohort:
    """Return the clients that have not measured for so many rounds."""
    return tuple(
        c for c in cohort if _last_measurement(state, c.handle) <= state.round_index - every
    )


def with_own_estimates(
    state: ServerState, estimates: Mapping[Handle, Sequence[RiskEstimate | None]], every: int
) -> ServerState:
    """Return the state in which clients remember what they just found out."""
    void = divergences(state)
    rows = {
        handle: _valid(row, state, every) for handle, row in state.get_state(OwnRisks).risks.items()
    }
    nothing = (None,) * len(state.clusters)
    for handle, figures in estimates.items():
        trained = state.assignment.get(handle)
        rows[handle] = tuple(
            _newer(
                None if cluster in void else figure,
                old,
                state.round_index,
                inside=cluster == trained,
            )
            for cluster, (figure, old) in enumerate(
                zip(figures, rows.get(handle, nothing), strict=True)
            )
        )
    return state.with_state(OwnRisks(risks=rows))


def _last_measurement(state: ServerState, handle: Handle) -> int:
    """Return when a client last measured; round 0 counts: there was nothing to see."""
    known = state.get_state(OwnRisks).risks.get(handle, ())
    return max((k.round_index for k in known if k), default=0)


def _newer(
    new: RiskEstimate | None, old: RiskEstimate | None, round_index: int, *, inside: bool
) -> RiskEstimate | None:
    if new is None or not new.counts or (old and old.inside and not inside):
        return old
    return replace(new, round_index=round_index, inside=inside)


def targets(state: ServerState, clients: Mapping[Handle, Client]) -> tuple[Target, ...]:
    """Return every cluster model as an attack sees it.

    Clients whose examples are not finite are no members: nothing of them is accepted.
    """
    void = divergences(state)
    clients = {h: client for h, client in clients.items() if has_finite_examples(client)}
    return tuple(
        Target(
            cluster=j,
            params=params,
            members=tuple(
                client for handle, client in clients.items() if state.assignment.get(handle) == j
            ),
            round_index=state.round_index,
            states=state.states,
            diverged=void.get(j, ""),
        )
        for j, params in enumerate(state.clusters)
    )


def _valid(
    estimates: Sequence[RiskEstimate | None], state: ServerState, every: int
) -> tuple[RiskEstimate | None, ...]:
    """Return what may still be acted on; the estimates of a diverged model are void."""
    now, void = state.round_index, divergences(state)
    lifetime = estimate_lifetime(every)
    return tuple(
        estimate if estimate and estimate.is_valid(now, lifetime) and j not in void else None
        for j, estimate in enumerate(estimates)
    )
