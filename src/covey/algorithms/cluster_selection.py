"""What clients see before they choose, and what their choices leave behind."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

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
from covey.algorithms.client_memory import ClientMemory
from covey.algorithms.local_training import Evaluate
from covey.algorithms.remote import (
    ClientContext,
    ClientRequest,
    RemoteClients,
    choices_of,
)
from covey.algorithms.round_steps import Steps
from covey.clustering import (
    UNASSIGNED,
    Selection,
    SelectionInputs,
    apply_hysteresis,
    cluster_shares,
    dual_ascent,
    select_by_loss,
    unconstrained_choice,
)
from covey.components.state import ComponentState
from covey.errors import ConfigError
from covey.events import ChoicesPerturbed, Event, PricesSet
from covey.membership import RiskEstimate
from covey.rng import Streams
from covey.types import Handle

__all__ = [
    "BY_LOSS",
    "ChooseClusters",
    "LossSmoother",
    "PriceUpdate",
    "Prices",
    "SelectionConfig",
    "SelectionResult",
    "SmoothedLosses",
    "cluster_choices",
    "local_choice",
    "loss_smoother",
    "no_prices",
    "price_update",
    "selection_inputs",
]

Losses = Float[Tensor, "clients clusters"]
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


ChooseClusters = Callable[[ServerState, Cohort, Streams], SelectionResult]
"""How the clients of a round come to their clusters."""


def cluster_choices(
    selection: SelectionConfig, steps: Steps
) -> tuple[ChooseClusters, ChooseClusters]:
    """Return how clients choose in a round, and how they do once more at the end."""
    if steps.remote is None:
        choose = local_choice(selection, steps.evaluate)
        return choose, choose
    choose_remotely = partial(remote_choice, selection, steps, steps.remote)
    return choose_remotely("choose"), choose_remotely("settle")


def remote_choice(
    selection: SelectionConfig,
    steps: Steps,
    remote: RemoteClients,
    task: Literal["choose", "settle"],
) -> ChooseClusters:
    """Let remote clients choose; they train at once, in the same message."""

    def choose(state: ServerState, cohort: Cohort, streams: Streams) -> SelectionResult:
        memory = state.kept(ClientMemory)
        previous = steps.recorded.get(state.round_index, {}) if task == "choose" else {}
        contexts = {
            c.handle: ClientContext(
                given=previous.get(c.handle),
                risks=state.known_risks(c.handle),
                current=state.assignment.get(c.handle, UNASSIGNED),
                settling=_is_locked(state, c.handle, selection.hysteresis),
                memory_round=memory.rounds.get(c.handle),
            )
            for c in cohort
        }
        request = ClientRequest(
            task,
            state.clusters,
            state.available(),
            streams.path,
            contexts,
            remote.recipe,
            state.round_index,
            steps.broadcast,
        )
        responses = remote.send(request, cohort)
        clusters = choices_of(responses)
        responding = tuple(client for client in cohort if client.handle in clusters)
        events = _noise_events(selection.epsilon, responding)
        return SelectionResult(state, clusters, events, remote.updates_of(responses))

    return choose


def local_choice(selection: SelectionConfig, evaluate: Evaluate) -> ChooseClusters:
    """Return line 12 of Algorithm 1, with what clients see and what they leave behind."""

    def choose(state: ServerState, cohort: Cohort, streams: Streams) -> SelectionResult:
        measured = evaluate(state.clusters, cohort, streams)  # f(theta_j, xi_i)
        smoothed, losses = selection.smooth_losses(state, cohort, measured)
        inputs = selection_inputs(
            smoothed, cohort, losses, streams, selection.hysteresis
        )
        picked = torch.as_tensor(selection.select(inputs))  # line 12
        _check(picked, smoothed, cohort)
        picked = apply_hysteresis(inputs, picked)
        clusters = {c.handle: int(j) for c, j in zip(cohort, picked, strict=True)}
        priced = selection.update_prices(smoothed, inputs)
        events = (*_noise_events(selection.epsilon, cohort), *priced.events)
        return SelectionResult(priced.state, clusters, events)

    return choose


def _noise_events(
    epsilon: float | None, cohort: Cohort
) -> tuple[ChoicesPerturbed, ...]:
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
            [_is_locked(state, h, hysteresis) for h in present], dtype=torch.bool
        ),
        absent_counts=torch.tensor([absent[j] for j in range(num_clusters)]),
        prices=torch.tensor(state.kept(Prices).prices or (0.0,) * num_clusters),
        streams=streams,
        client_streams=tuple(streams.at("choice", client.name) for client in cohort),
    )


def _is_locked(state: ServerState, handle: Handle, hysteresis: int) -> bool:
    """Say whether a client moved in one of the last rounds."""
    moved = state.kept(LastMoves).rounds.get(handle)
    return moved is not None and state.round_index - moved <= hysteresis


def _check(chosen: Tensor, state: ServerState, cohort: Cohort) -> None:
    """Refuse what a user's own selection may return by mistake."""
    offered = [j for j, is_offered in enumerate(state.available()) if is_offered]
    values = set(chosen.flatten().tolist())
    if chosen.shape != (len(cohort),) or not values <= set(offered):
        raise ConfigError(
            f"A selection must return one offered cluster index per client: "
            f"{len(cohort)} integers out of {offered}. Found shape "
            f"{tuple(chosen.shape)} with values {sorted(values)}. "
            f"Choose among `inputs.available` only."
        )
