"""IFCA and IFCA-MIR: one round, read beside Algorithm 1 of the IFCA-MIR paper.

References:
    Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
    Learning, 2020.
    Jung, Biswas, Palamidessi, Mitigating Membership Inference Vulnerability in
    Personalized Federated Learning (IFCA-MIR), 2025, Algorithm 1.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from covey.clustering import Ballot, Selection, select_by_loss
from covey.errors import ConfigError
from covey.events import ClientsAssigned, Event, RiskUnknown
from covey.rng import Streams
from covey.strategies.base import Cohort, Played, ServerState, Strategy
from covey.strategies.steps import Steps

__all__ = ["ifca", "ifca_mir"]


def ifca(init: Callable[[Streams], ServerState], steps: Steps) -> Strategy:
    """Let every client train the cluster model with the lowest loss on its examples."""
    return _personalised(init, steps, select_by_loss)


def ifca_mir(
    init: Callable[[Streams], ServerState], steps: Steps, select: Selection
) -> Strategy:
    """Let every client weigh each cluster's loss against its measured risk.

    The risks come from `covey.strategies.redteam.red_teamed`, which wraps this strategy.
    """
    strategy = _personalised(init, steps, select)

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> Played:
        played = strategy.play_round(state, cohort, streams)
        return Played(played.state, (*_unknown(state), *played.events))

    return strategy._replace(play_round=play_round)


def _personalised(
    init: Callable[[Streams], ServerState], steps: Steps, select: Selection
) -> Strategy:
    def choose(state: ServerState, cohort: Cohort, streams: Streams) -> dict[str, int]:
        losses = steps.evaluate(state.clusters, cohort, streams)  # f(theta_j, xi_i)
        chosen = torch.as_tensor(select(_ballot(state, cohort, losses)))  # line 12
        _check(chosen, state, cohort)
        return {c.handle: int(j) for c, j in zip(cohort, chosen, strict=True)}

    def play_round(state: ServerState, cohort: Cohort, streams: Streams) -> Played:
        chosen = ClientsAssigned(choose(state, cohort, streams), "clients")
        return steps.move(state, cohort, chosen, streams)  # lines 13-17

    def conclude(state: ServerState, cohort: Cohort, streams: Streams) -> Played:
        final = ClientsAssigned(choose(state, cohort, streams), "final")
        return Played(state.with_choices(final.clusters), (final,))

    return Strategy(init, play_round, conclude)


def _ballot(
    state: ServerState, cohort: Cohort, losses: Float[Tensor, "clients clusters"]
) -> Ballot:
    risks = [math.nan if f is None else f.risk for f in state.figures]
    errors = [math.nan if f is None else f.standard_error for f in state.figures]
    preferences = [client.preference for client in cohort]
    return Ballot(
        losses=losses,
        risks=torch.tensor(risks, dtype=torch.float32),
        risk_errors=torch.tensor(errors, dtype=torch.float32),
        risk_weights=torch.tensor([p.risk_weight for p in preferences]),
        risk_thresholds=torch.tensor([p.risk_threshold for p in preferences]),
        offered=torch.tensor(state.offered()),
    )


def _check(chosen: Tensor, state: ServerState, cohort: Cohort) -> None:
    """Refuse what a user's own selection may return by mistake."""
    offered = [j for j, is_offered in enumerate(state.offered()) if is_offered]
    values = set(chosen.flatten().tolist())
    if chosen.shape != (len(cohort),) or not values <= set(offered):
        raise ConfigError(
            f"A selection must return one offered cluster index per client: "
            f"{len(cohort)} integers out of {offered}. Found shape "
            f"{tuple(chosen.shape)} with values {sorted(values)}. "
            f"Choose among `ballot.offered` only."
        )


def _unknown(state: ServerState) -> tuple[Event, ...]:
    """Say which offered clusters were chosen among without a valid figure."""
    missing = [
        j
        for j, is_offered in enumerate(state.offered())
        if is_offered and state.figures[j] is None
    ]
    return (RiskUnknown(tuple(missing)),) if missing else ()
