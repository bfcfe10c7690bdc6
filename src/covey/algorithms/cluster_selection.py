"""What clients see before they choose, and what their choices leave behind."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.algorithms.base import Cohort, KnownRisk, Played, ServerState
from covey.algorithms.remote import Apart, Call, Slip, choices_of, updates_of
from covey.algorithms.round_steps import Evaluate, Steps
from covey.clustering import (
    NOWHERE,
    Ballot,
    Selection,
    ascended,
    shares,
    stay_settled,
    wishes,
)
from covey.errors import ConfigError
from covey.events import ChoicesPerturbed, Event, PricesSet
from covey.rng import Streams
from covey.types import Handle

__all__ = [
    "Choice",
    "Choosing",
    "Decide",
    "Look",
    "Market",
    "choose",
    "deciding",
    "free_of_charge",
    "priced_towards",
    "smoothed",
]

Losses = Float[Tensor, "clients clusters"]
Look = Callable[[ServerState, Cohort, Losses], tuple[ServerState, Losses]]
"""What becomes of measured losses before they are compared, and what is remembered."""
Market = Callable[[ServerState, Ballot], Played]
"""What the server does with a round's wishes: the next state, and the facts."""


def smoothed(smoothing: float) -> Look:
    """Compare losses that each client smooths over the rounds it takes part in.

    s_t[i, j] = smoothing * s_{t-1}[i, j] + (1 - smoothing) * loss_t[i, j]

    With 0 the losses of this round are compared, and nothing else. The first losses are
    taken as they are, which leaves no bias towards a start at 0; so are those after a
    diverged model's, which would never fade.
    """

    def look(
        state: ServerState, cohort: Cohort, losses: Losses
    ) -> tuple[ServerState, Losses]:
        past = state.memory.losses
        now = {c.handle: row for c, row in zip(cohort, losses.tolist(), strict=True)}
        seen = {
            handle: tuple(
                smoothing * s + (1 - smoothing) * loss
                for s, loss in zip(past.get(handle, row), row, strict=True)
            )
            for handle, row in now.items()
        }
        finite = {h: row for h, row in seen.items() if all(map(math.isfinite, row))}
        others = {h: row for h, row in past.items() if h not in seen}
        memory = replace(state.memory, losses={**others, **finite})
        compared = torch.tensor(list(seen.values())).reshape(losses.shape)
        return replace(state, memory=memory), compared

    return look


def free_of_charge(state: ServerState, _: Ballot) -> Played:
    """Set no prices."""
    return Played(state, ())


def priced_towards(target_share: float) -> Market:
    """Return the market that adapts a subsidy per cluster after every round.

    price_j <- max(0, price_j + step (target_share - share_j)), see `ascended`; a cluster
    that is not offered has no price.
    """

    def market(state: ServerState, ballot: Ballot) -> Played:
        if not len(ballot.losses):
            return Played(state, ())
        wished = shares(ballot, wishes(ballot)).tolist()
        rising = ascended(ballot.prices.tolist(), wished, target_share)
        prices = tuple(
            price if is_offered else 0.0
            for price, is_offered in zip(rising, state.offered(), strict=True)
        )
        after = replace(state, memory=replace(state.memory, prices=prices))
        return Played(after, (PricesSet(prices, tuple(wished), target_share),))

    return market


AS_MEASURED = smoothed(0.0)


@dataclass(frozen=True, slots=True)
class Choosing:
    """How clients come to choose.

    Attributes:
        select: what clients do with their ballot.
        look: what they compare, given this round's losses.
        market: what the server makes of their wishes.
        hysteresis: rounds for which a client that moved stays.
        epsilon: of one choice, where it is differentially private.
    """

    select: Selection
    look: Look = AS_MEASURED
    market: Market = free_of_charge
    hysteresis: int = 0
    epsilon: float | None = None


class Choice(NamedTuple):
    """What the clients chose, before anybody acts on it.

    Attributes:
        state: with the memory of this choice, and everybody still where it was.
        updates: where clients are apart, they train at once what they choose.
    """

    state: ServerState
    clusters: dict[Handle, int]
    events: tuple[Event, ...]
    updates: tuple[ClientUpdate, ...] | None = None


Decide = Callable[[ServerState, Cohort, Streams], Choice]
"""How the clients of a round come to their clusters."""


def deciding(how: Choosing, steps: Steps) -> tuple[Decide, Decide]:
    """Return how clients choose in a round, and how they do once more at the end."""
    if steps.apart is None:
        decide = choose(how, steps.evaluate)
        return decide, decide
    asked = partial(ask_to_choose, how, steps.apart, steps.recorded)
    return asked("choose"), asked("settle")


def ask_to_choose(
    how: Choosing,
    apart: Apart,
    recorded: Mapping[int, Mapping[Handle, int]],
    task: Literal["choose", "settle"],
) -> Decide:
    """Let clients that are apart choose; they train at once, in the same message."""

    def chosen(state: ServerState, cohort: Cohort, streams: Streams) -> Choice:
        then = recorded.get(state.round_index, {}) if task == "choose" else {}
        slips = {
            c.handle: Slip(
                given=then.get(c.handle),
                risks=state.known_to(c.handle),
                current=state.assignment.get(c.handle, NOWHERE),
                settling=_settling(state, c.handle, how.hysteresis),
            )
            for c in cohort
        }
        call = Call(
            task,
            state.clusters,
            state.offered(),
            streams.path,
            slips,
            apart.recipe,
            state.round_index,
        )
        answers = apart.reach(call, cohort)
        clusters = choices_of(answers)
        came = tuple(client for client in cohort if client.handle in clusters)
        events = _perturbed(how.epsilon, came)
        return Choice(state, clusters, events, updates_of(answers))

    return chosen


def choose(how: Choosing, evaluate: Evaluate) -> Decide:
    """Return line 12 of Algorithm 1, with what clients see and what they leave behind."""

    def chosen(state: ServerState, cohort: Cohort, streams: Streams) -> Choice:
        measured = evaluate(state.clusters, cohort, streams)  # f(theta_j, xi_i)
        seen, losses = how.look(state, cohort, measured)
        ballot = _ballot(seen, cohort, losses, streams, how.hysteresis)
        picked = torch.as_tensor(how.select(ballot))  # line 12
        _check(picked, seen, cohort)
        picked = stay_settled(ballot, picked)
        clusters = {c.handle: int(j) for c, j in zip(cohort, picked, strict=True)}
        priced = how.market(seen, ballot)
        events = (*_perturbed(how.epsilon, cohort), *priced.events)
        return Choice(priced.state, clusters, events)

    return chosen


def _perturbed(epsilon: float | None, cohort: Cohort) -> tuple[ChoicesPerturbed, ...]:
    if epsilon is None or not cohort:
        return ()
    return (ChoicesPerturbed(epsilon, tuple(client.handle for client in cohort)),)


def _ballot(
    state: ServerState,
    cohort: Cohort,
    losses: Losses,
    streams: Streams,
    hysteresis: int,
) -> Ballot:
    known = [state.known_to(client.handle) for client in cohort]

    def table(of: Callable[[KnownRisk], float]) -> Float[Tensor, "clients clusters"]:
        rows = [[math.nan if k is None else of(k) for k in row] for row in known]
        return torch.tensor(rows, dtype=torch.float32).reshape(losses.shape)

    preferences = [client.preference for client in cohort]
    here = [client.handle for client in cohort]
    absent = Counter(j for h, j in state.assignment.items() if h not in set(here))
    num_clusters = len(state.clusters)
    return Ballot(
        losses=losses,
        risks=table(lambda each: each.risk),
        risk_errors=table(lambda each: each.standard_error),
        risk_weights=torch.tensor([p.risk_weight for p in preferences]),
        risk_thresholds=torch.tensor([p.risk_threshold for p in preferences]),
        offered=torch.tensor(state.offered()),
        current=torch.tensor(
            [state.assignment.get(h, NOWHERE) for h in here], dtype=torch.int64
        ),
        settling=torch.tensor(
            [_settling(state, h, hysteresis) for h in here], dtype=torch.bool
        ),
        elsewhere=torch.tensor([absent[j] for j in range(num_clusters)]),
        prices=torch.tensor(state.memory.prices or (0.0,) * num_clusters),
        streams=streams,
        own=tuple(streams.at("choice", client.name) for client in cohort),
    )


def _settling(state: ServerState, handle: Handle, hysteresis: int) -> bool:
    """Say whether a client moved in one of the last rounds."""
    moved = state.memory.moved.get(handle)
    return moved is not None and state.round_index - moved <= hysteresis


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
