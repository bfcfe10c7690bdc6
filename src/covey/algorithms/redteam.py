"""The wrappers that let somebody look at a strategy's cluster models before a choice.

A red team's figures are sent to everybody; what clients find by themselves stays theirs.
"""

from collections.abc import Mapping, Sequence

from covey.algorithms.algorithm import Strategy
from covey.algorithms.base import (
    Cohort,
    KnownRisk,
    OwnRisks,
    RiskEstimates,
    RoundResult,
    ServerState,
)
from covey.algorithms.clients import Clients
from covey.algorithms.divergence import divergences
from covey.data.examples import Client
from covey.events import ModelDiverged, RiskMeasured
from covey.membership import (
    Assessment,
    Figure,
    RedTeam,
    SelfJudge,
    Target,
    has_finite_examples,
)
from covey.rng import Streams
from covey.types import Handle

__all__ = [
    "due_to_measure",
    "estimate_lifetime",
    "red_teamed",
    "self_assessed",
    "targets",
    "with_own_estimates",
]


def estimate_lifetime(every: int) -> int:
    """Return for how many rounds a figure counts: one measurement may fail."""
    return 2 * every


def red_teamed(
    strategy: Strategy, attack: RedTeam, every: int, members: Mapping[Handle, Client]
) -> Strategy:
    """Measure every cluster's risk each `every` rounds, before the clients choose.

    Lines 4-7 of Algorithm 1. Nothing is measured before somebody has chosen a cluster;
    a figure lives for 2 * every rounds, and one that is withheld is no figure. Of a model
    that diverged the older ones are void too.
    """

    def play_round(
        state: ServerState, clients: Clients, streams: Streams
    ) -> RoundResult:
        due = state.round_index > 0 and state.round_index % every == 0
        if not (due and state.assignment):
            return strategy.play_round(_expired(state), clients, streams)
        measured = measure(state, streams)
        played = strategy.play_round(_expired(measured.state), clients, streams)
        return played._replace(events=(*measured.events, *played.events))

    def conclude(state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        measured = measure(state, streams)
        played = strategy.conclude(_expired(measured.state), clients, streams)
        return RoundResult(played.state, (*measured.events, *played.events))

    def measure(state: ServerState, streams: Streams) -> RoundResult:
        found = [
            attack(target, streams.at("red team", target.cluster))
            for target in targets(state, members)
        ]
        facts = (fact for each in found for fact in (*_diverged(each), each.figure))
        return RoundResult(_with_estimates(state, found), tuple(facts))

    def _expired(state: ServerState) -> ServerState:
        oldest, void = state.round_index - estimate_lifetime(every), divergences(state)
        valid = tuple(
            None if f is None or f.round_index < oldest or j in void else f
            for j, f in enumerate(state.risk_estimates())
        )
        shadows = state.kept(RiskEstimates).shadows
        return state.keeping(RiskEstimates(estimates=valid, shadows=shadows))

    return strategy._replace(play_round=play_round, conclude=conclude)


def self_assessed(strategy: Strategy, assess: SelfJudge, every: int) -> Strategy:
    """Let each client measure, each `every` rounds, the models that it receives.

    What a client finds about a model that it does not train says what this model knows
    of it now, and not what it would know of a member. So a finding from inside a cluster
    is not replaced by one from outside as long as it lives.
    """

    def play_round(
        state: ServerState, clients: Clients, streams: Streams
    ) -> RoundResult:
        due = due_to_measure(state, clients.cohort, every) if state.assignment else ()
        found = with_own_estimates(state, assess(state.clusters, due, streams), every)
        return strategy.play_round(found, clients, streams)

    def conclude(state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        due = clients.cohort if state.assignment else ()
        found = with_own_estimates(state, assess(state.clusters, due, streams), every)
        return strategy.conclude(found, clients, streams)

    return strategy._replace(play_round=play_round, conclude=conclude)


def due_to_measure(state: ServerState, cohort: Cohort, every: int) -> Cohort:
    """Return the clients that have not measured for so many rounds."""
    return tuple(
        c for c in cohort if _latest(state, c.handle) <= state.round_index - every
    )


def with_own_estimates(
    state: ServerState, found: Mapping[Handle, Sequence[Figure | None]], every: int
) -> ServerState:
    """Return the state in which clients remember what they just found out."""
    oldest, void = state.round_index - estimate_lifetime(every), divergences(state)
    rows = {
        handle: tuple(
            k if k and k.round_index >= oldest and j not in void else None
            for j, k in enumerate(row)
        )
        for handle, row in state.kept(OwnRisks).risks.items()
    }
    nothing = (None,) * len(state.clusters)
    for handle, figures in found.items():
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
    return state.keeping(OwnRisks(risks=rows))


def _latest(state: ServerState, handle: Handle) -> int:
    """Return when a client last measured; round 0 counts: there was nothing to see."""
    known = state.kept(OwnRisks).risks.get(handle, ())
    return max((k.round_index for k in known if k), default=0)


def _newer(
    estimate: Figure | None, old: KnownRisk | None, round_index: int, *, inside: bool
) -> KnownRisk | None:
    if estimate is None or (old and old.inside and not inside):
        return old
    return KnownRisk(estimate.risk, estimate.standard_error, round_index, inside)


def targets(state: ServerState, clients: Mapping[Handle, Client]) -> tuple[Target, ...]:
    """Return every cluster model as an attack sees it.

    Clients whose examples are not finite are no members: nothing of them is accepted.
    """
    void = divergences(state)
    shadows = state.kept(RiskEstimates).shadows or ((),) * len(state.clusters)
    clients = {
        h: client for h, client in clients.items() if has_finite_examples(client)
    }
    return tuple(
        Target(
            cluster=j,
            params=params,
            members=tuple(
                client
                for handle, client in clients.items()
                if state.assignment.get(handle) == j
            ),
            round_index=state.round_index,
            shadows=shadows[j],
            diverged=void.get(j, ""),
        )
        for j, params in enumerate(state.clusters)
    )


def _diverged(found: Assessment) -> tuple[ModelDiverged, ...]:
    figure, reason = found.figure, found.diverged
    if not reason:
        return ()
    return (ModelDiverged(figure.cluster, figure.round_index, reason),)


def _with_estimates(state: ServerState, found: list[Assessment]) -> ServerState:
    """Keep a cluster's older figure, while it lives, where the new one is withheld."""

    def latest(new: Assessment, old: RiskMeasured | None) -> RiskMeasured | None:
        if new.diverged:
            return None
        return new.figure if new.figure.calibrated else old

    estimates = tuple(
        latest(each, old)
        for each, old in zip(found, state.risk_estimates(), strict=True)
    )
    shadows = tuple(each.shadows for each in found)
    return state.keeping(RiskEstimates(estimates=estimates, shadows=shadows))
