"""The wrapper that lets a red team look at a strategy's cluster models."""

from collections.abc import Mapping
from dataclasses import replace

from covey.data.examples import Client
from covey.events import RiskMeasured
from covey.redteam import Assessment, RedTeam, Target
from covey.rng import Streams
from covey.strategies.base import Cohort, Played, ServerState, Strategy
from covey.types import Handle

__all__ = ["figure_lives", "red_teamed", "targets"]


def figure_lives(every: int) -> int:
    """Return for how many rounds a figure counts: one measurement may fail."""
    return 2 * every


def red_teamed(
    strategy: Strategy, attack: RedTeam, every: int, clients: Mapping[Handle, Client]
) -> Strategy:
    """Measure every cluster's risk each `every` rounds, before the clients choose.

    Lines 4-7 of Algorithm 1. Nothing is measured before somebody has chosen a cluster;
    a figure lives for 2 * every rounds, and one that is withheld is no figure.
    """

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> Played:
        due = state.round_index > 0 and state.round_index % every == 0
        if not (due and state.assignment):
            return strategy.play_round(_expired(state), cohort, streams)
        measured = measure(state, streams)
        played = strategy.play_round(_expired(measured.state), cohort, streams)
        return Played(played.state, (*measured.events, *played.events))

    def conclude(state: ServerState, cohort: Cohort, streams: Streams) -> Played:
        measured = measure(state, streams)
        played = strategy.conclude(_expired(measured.state), cohort, streams)
        return Played(played.state, (*measured.events, *played.events))

    def measure(state: ServerState, streams: Streams) -> Played:
        found = [
            attack(target, streams.at("red team", target.cluster))
            for target in targets(state, clients)
        ]
        facts = tuple(each.figure for each in found)
        return Played(_refreshed(state, found), facts)

    def _expired(state: ServerState) -> ServerState:
        oldest = state.round_index - figure_lives(every)
        return replace(
            state,
            figures=tuple(
                None if f is None or f.round_index < oldest else f
                for f in state.figures
            ),
        )

    return strategy._replace(play_round=play_round, conclude=conclude)


def targets(state: ServerState, clients: Mapping[Handle, Client]) -> tuple[Target, ...]:
    """Return every cluster model as an attack sees it."""
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
            shadows=state.shadows[j],
        )
        for j, params in enumerate(state.clusters)
    )


def _refreshed(state: ServerState, found: list[Assessment]) -> ServerState:
    """Keep a cluster's older figure, while it lives, where the new one is withheld."""

    def latest(new: RiskMeasured, old: RiskMeasured | None) -> RiskMeasured | None:
        return new if new.calibrated else old

    return replace(
        state,
        figures=tuple(
            latest(each.figure, old)
            for each, old in zip(found, state.figures, strict=True)
        ),
        shadows=tuple(each.shadows for each in found),
    )
