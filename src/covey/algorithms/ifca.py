"""IFCA and IFCA-MIR: one round, read beside Algorithm 1 of the IFCA-MIR paper.

References:
    Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
    Learning, 2020.
    Jung, Biswas, Palamidessi, Mitigating Membership Inference Vulnerability in
    Personalized Federated Learning (IFCA-MIR), 2025, Algorithm 1.
"""

from collections.abc import Callable

from covey.algorithms.base import Cohort, RoundResult, ServerState, Strategy
from covey.algorithms.cluster_selection import SelectionConfig, cluster_choices
from covey.algorithms.round_steps import Steps
from covey.clustering import select_by_loss
from covey.events import ClientsAssigned, Event, PricesSet, RiskUnknown
from covey.rng import Streams

__all__ = ["ifca", "ifca_mir"]

BY_LOSS = SelectionConfig(select_by_loss)


def ifca(
    init: Callable[[Streams], ServerState],
    steps: Steps,
    selection: SelectionConfig = BY_LOSS,
) -> Strategy:
    """Let every client train the cluster model with the lowest loss on its examples."""
    return _personalised(init, steps, selection)


def ifca_mir(
    init: Callable[[Streams], ServerState], steps: Steps, selection: SelectionConfig
) -> Strategy:
    """Let every client weigh each cluster's loss against its measured risk.

    The risks come from `covey.algorithms.redteam.red_teamed`, which wraps this strategy.
    """
    strategy = _personalised(init, steps, selection)

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        played = strategy.play_round(state, cohort, streams)
        return RoundResult(played.state, (*_unknown(state, cohort), *played.events))

    return strategy._replace(play_round=play_round)


def _personalised(
    init: Callable[[Streams], ServerState], steps: Steps, selection: SelectionConfig
) -> Strategy:
    decide, settle = cluster_choices(selection, steps)

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        choice = decide(state, cohort, streams)  # line 12
        chosen = ClientsAssigned(choice.clusters, "clients")
        training = (
            steps if choice.updates is None else steps.with_updates(choice.updates)
        )
        moved = training.train_and_aggregate(
            choice.state, cohort, chosen, streams
        )  # lines 13-17
        return RoundResult(moved.state, (*choice.events, *moved.events))

    def conclude(state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        choice = settle(state, cohort, streams)
        final = ClientsAssigned(choice.clusters, "final")
        told = (each for each in choice.events if not isinstance(each, PricesSet))
        return RoundResult(choice.state.with_choices(final.clusters), (*told, final))

    return Strategy(init, play_round, conclude)


def _unknown(state: ServerState, cohort: Cohort) -> tuple[Event, ...]:
    """Say which offered clusters were chosen among by clients who knew no risk of them."""
    known = [state.known_risks(client.handle) for client in cohort]
    missing = [
        j
        for j, is_offered in enumerate(state.available())
        if is_offered and any(row[j] is None for row in known)
    ]
    return (RiskUnknown(tuple(missing)),) if missing else ()
