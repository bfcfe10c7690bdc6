"""What clients see before they choose, and what their choices leave behind."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.algorithms.base import (
    Cohort,
    RoundResult,
    ServerState,
)
from covey.algorithms.client_memory import ObjectiveInputs
from covey.clustering import (
    UNASSIGNED,
    Selection,
    SelectionInputs,
    cluster_shares,
    dual_ascent,
    select_by_loss,
    unconstrained_choice,
)
from covey.components.state import ComponentState
from covey.events import ChoicesPerturbed, Event, PricesSet
from covey.membership import RiskEstimate
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "BY_LOSS",
    "Evaluate",
    "LatestLosses",
    "Losses",
    "PriceUpdate",
    "Prices",
    "SelectionConfig",
    "SelectionResult",
    "TrainAtOnce",
    "choice_events",
    "no_prices",
    "price_update",
    "selection_inputs",
    "with_latest_losses",
]

Losses = Float[Tensor, "clients clusters"]
Evaluate = Callable[[tuple[Params, ...], Cohort, Streams], Losses]
PriceUpdate = Callable[[ServerState, SelectionInputs], RoundResult]
"""What the server does with a round's wishes: the next state, and the facts."""


class LatestLosses(ComponentState):
    """Each client's latest losses per cluster, in nats."""

    key = "latest-losses"
    losses: Mapping[Handle, tuple[float, ...]] = {}


class Prices(ComponentState):
    """The subsidy per cluster; empty before the first round with prices."""

    key = "prices"
    prices: tuple[float, ...] = ()


def with_latest_losses(
    state: ServerState, cohort: Cohort, losses: Losses
) -> ServerState:
    """Return the state that remembers these losses; not those of a diverged model."""
    past = state.kept(LatestLosses).losses
    now = {c.handle: tuple(row) for c, row in zip(cohort, losses.tolist(), strict=True)}
    finite = {h: row for h, row in now.items() if all(map(math.isfinite, row))}
    others = {h: row for h, row in past.items() if h not in now}
    return state.keeping(LatestLosses(losses={**others, **finite}))


def no_prices(state: ServerState, _: SelectionInputs) -> RoundResult:
    """Set no prices."""
    return RoundResult(state, ())


def price_update(target_share: float) -> PriceUpdate:
    """Return the market that adapts a subsidy per cluster after every round.

    price_j <- max(0, price_j + step (target_share - share_j)), see `dual_ascent`; a cluster
    that is not offered has no price.
    """

    def update(state: ServerState, inputs: SelectionInputs) -> RoundResult:
        if not len(inputs.losses):
            return RoundResult(state, ())
        wanted_shares = cluster_shares(inputs, unconstrained_choice(inputs)).tolist()
        rising = dual_ascent(inputs.prices.tolist(), wanted_shares, target_share)
        prices = tuple(
            price if is_offered else 0.0
            for price, is_offered in zip(rising, state.available(), strict=True)
        )
        fact = PricesSet(prices, tuple(wanted_shares), target_share)
        return RoundResult(state.keeping(Prices(prices=prices)), (fact,))

    return update


@dataclass(frozen=True, slots=True)
class SelectionConfig:
    """How clients come to choose.

    Attributes:
        select: how clients choose, given their inputs.
        update_prices: what the server makes of their wishes.
        epsilon: of one choice, where it is differentially private.
    """

    select: Selection
    update_prices: PriceUpdate = no_prices
    epsilon: float | None = None


BY_LOSS = SelectionConfig(select_by_loss)
"""IFCA: the lowest loss, and nothing else."""


class TrainAtOnce(NamedTuple):
    """What remote clients need to train, in the same message, what they choose.

    Attributes:
        given: clusters that clients take without a choice.
        inputs: what their objectives look at.
    """

    given: Mapping[Handle, int]
    inputs: ObjectiveInputs


class SelectionResult(NamedTuple):
    """What the clients chose, before anybody acts on it.

    Attributes:
        state: with the memory of this choice, and everybody still where it was.
        updates: where clients are remote, they train at once what they choose.
    """

    state: ServerState
    clusters: dict[Handle, int]
    events: tuple[Event, ...]
    updates: tuple[ClientUpdate, ...] | None = None


def choice_events(
    epsilon: float | None, cohort: Cohort
) -> tuple[ChoicesPerturbed, ...]:
    """Return what is told of the noise in these clients' choices, if there is any."""
    if epsilon is None or not cohort:
        return ()
    return (ChoicesPerturbed(epsilon, tuple(client.handle for client in cohort)),)


def selection_inputs(
    state: ServerState,
    cohort: Cohort,
    losses: Losses,
    streams: Streams,
) -> SelectionInputs:
    """Return what the clients of a cohort know when they choose."""
    known = [state.known_risks(client.handle) for client in cohort]

    def table(of: Callable[[RiskEstimate], float]) -> Float[Tensor, "clients clusters"]:
        rows = [[math.nan if k is None else of(k) for k in row] for row in known]
        return torch.tensor(rows, dtype=torch.float32).reshape(losses.shape)

    preferences = [client.preference for client in cohort]
    present = [client.handle for client in cohort]
    absent = Counter(j for h, j in state.assignment.items() if h not in set(present))
    num_clusters = len(state.clusters)
    return SelectionInputs(
        losses=losses,
        risks=table(lambda each: each.risk),
        risk_errors=table(lambda each: each.standard_error),
        risk_weights=torch.tensor([p.risk_weight for p in preferences]),
        risk_thresholds=torch.tensor([p.risk_threshold for p in preferences]),
        available=torch.tensor(state.available()),
        current=torch.tensor(
            [state.assignment.get(h, UNASSIGNED) for h in present], dtype=torch.int64
        ),
        absent_counts=torch.tensor([absent[j] for j in range(num_clusters)]),
        prices=torch.tensor(state.kept(Prices).prices or (0.0,) * num_clusters),
        streams=streams,
        client_streams=tuple(streams.at("choice", client.name) for client in cohort),
    )
