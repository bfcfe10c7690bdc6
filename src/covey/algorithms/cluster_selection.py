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
    LastMoves,
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
    "LossSmoother",
    "Losses",
    "PriceUpdate",
    "Prices",
    "SelectionConfig",
    "SelectionResult",
    "SmoothedLosses",
    "TrainAtOnce",
    "choice_events",
    "is_locked",
    "loss_smoother",
    "no_prices",
    "price_update",
    "selection_inputs",
]

Losses = Float[Tensor, "clients clusters"]
Evaluate = Callable[[tuple[Params, ...], Cohort, Streams], Losses]
LossSmoother = Callable[[ServerState, Cohort, Losses], tuple[ServerState, Losses]]
"""What becomes of measured losses before they are compared, and what is remembered."""
PriceUpdate = Callable[[ServerState, SelectionInputs], RoundResult]
"""What the server does with a round's wishes: the next state, and the facts."""


class SmoothedLosses(ComponentState):
    """Each client's latest losses per cluster, smoothed or not, in nats."""

    key = "smoothed-losses"
    losses: Mapping[Handle, tuple[float, ...]] = {}


class Prices(ComponentState):
    """The subsidy per cluster; empty before the first round with prices."""

    key = "prices"
    prices: tuple[float, ...] = ()


def loss_smoother(smoothing: float) -> LossSmoother:
    """Compare losses that each client smooths over the rounds it takes part in.

    s_t[i, j] = smoothing * s_{t-1}[i, j] + (1 - smoothing) * loss_t[i, j]

    With 0 the losses of this round are compared, and nothing else. The first losses are
    taken as they are, which leaves no bias towards a start at 0; so are those after a
    diverged model's, which would never fade.
    """

    def smooth(
        state: ServerState, cohort: Cohort, losses: Losses
    ) -> tuple[ServerState, Losses]:
        past = state.kept(SmoothedLosses).losses
        now = {c.handle: row for c, row in zip(cohort, losses.tolist(), strict=True)}
        smoothed = {
            handle: tuple(
                smoothing * s + (1 - smoothing) * loss
                for s, loss in zip(past.get(handle, row), row, strict=True)
            )
            for handle, row in now.items()
        }
        finite = {h: row for h, row in smoothed.items() if all(map(math.isfinite, row))}
        others = {h: row for h, row in past.items() if h not in smoothed}
        compared = torch.tensor(list(smoothed.values())).reshape(losses.shape)
        return state.keeping(SmoothedLosses(losses={**others, **finite})), compared

    return smooth


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


NO_SMOOTHING = loss_smoother(0.0)


@dataclass(frozen=True, slots=True)
class SelectionConfig:
    """How clients come to choose.

    Attributes:
        select: how clients choose, given their inputs.
        smooth_losses: what they compare, given this round's losses.
        update_prices: what the server makes of their wishes.
        hysteresis: rounds for which a client that moved stays.
        epsilon: of one choice, where it is differentially private.
    """

    select: Selection
    smooth_losses: LossSmoother = NO_SMOOTHING
    update_prices: PriceUpdate = no_prices
    hysteresis: int = 0
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
    hysteresis: int = 0,
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
        locked=torch.tensor(
            [is_locked(state, h, hysteresis) for h in present], dtype=torch.bool
        ),
        absent_counts=torch.tensor([absent[j] for j in range(num_clusters)]),
        prices=torch.tensor(state.kept(Prices).prices or (0.0,) * num_clusters),
        streams=streams,
        client_streams=tuple(streams.at("choice", client.name) for client in cohort),
    )


def is_locked(state: ServerState, handle: Handle, hysteresis: int) -> bool:
    """Say whether a client moved in one of the last rounds."""
    moved = state.kept(LastMoves).rounds.get(handle)
    return moved is not None and state.round_index - moved <= hysteresis
