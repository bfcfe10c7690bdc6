"""One round of training: clients' updates are aggregated one by one, and who took part recorded."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from covey.aggregation.base import NOT_FINITE, BeginRound, ClientUpdate, NoisySteps
from covey.aggregation.mean import PostProcess
from covey.aggregation.server import Models, NoServerOptimizer, ServerStep
from covey.algorithms.state import (
    Cohort,
    RoundResult,
    ServerState,
    abandonment_events,
    with_memory,
    with_waiting_counts,
)
from covey.base.component_state import ComponentState, States
from covey.base.events import (
    AnswerRefused,
    ClientsAssigned,
    Event,
    ExposuresLimited,
    ModelsMerged,
    StepsPerturbed,
    UpdatesPerturbed,
)
from covey.base.names import Handle, Params
from covey.base.params import model_hash, not_finite
from covey.base.rng import Streams
from covey.membership.truth import STALLED, has_non_finite_values


@dataclass(frozen=True, slots=True, eq=False)
class RoundSteps:
    """What becomes of the updates of a round.

    Attributes:
        aggregation: how they become the next models.
        post_processors: what each update passes before, in this order: a clip, the client's
            own noise.
        server_step: what the server makes of the aggregated models.
        patience: rounds for which clients stay in a cluster whose aggregation makes them wait.
        stores_updates: whether raw updates are handed on, to be kept.
        dp_accounted: whether noise is added that is accounted for. Then a client whose
            update is refused counts as one that sent 0; else it has taken no part.
        exposures: C_i / C of the clients whose clip is known to be below everybody's C.
        own_noise: the clip and the multiplier of the noise that clients add by themselves to
            the updates that they send; None: they add none.
    """

    aggregation: BeginRound
    post_processors: tuple[PostProcess, ...] = ()
    server_step: ServerStep = NoServerOptimizer().step
    patience: int = 1
    stores_updates: bool = False
    dp_accounted: bool = False
    exposures: Mapping[Handle, float] = field(default_factory=dict[Handle, float])
    own_noise: tuple[float, float] | None = None

    def noise_in(self, received: Mapping[Handle, NoisySteps | None]) -> tuple[Event, ...]:
        """Return the facts about the noise in these clients' updates, and about their clips."""
        noisy = {handle: noise for handle, noise in received.items() if noise is not None}
        limited = {h: self.exposures[h] for h in received if h in self.exposures}
        facts: list[Event] = []
        if noisy:
            z = min(noise.multiplier for noise in noisy.values())
            steps = {handle: noise.steps for handle, noise in noisy.items()}
            facts += [StepsPerturbed(z, steps, {h: noise.sampling for h, noise in noisy.items()})]
        facts += [ExposuresLimited(limited)] if limited else []
        facts += (
            [UpdatesPerturbed(*self.own_noise, (*received,))] if self.own_noise and received else []
        )
        return tuple(facts)


class RefusedUpdate(NamedTuple):
    """An update that is not finite, or is not together with the others of its cluster.

    Attributes:
        entry: the first of the update's entries that holds NaN or infinity, or the first
            of the model that all updates make.
        together: whether all are finite by themselves, and what they add up to is not.
    """

    handle: Handle
    entry: str
    together: bool = False

    @property
    def event(self) -> AnswerRefused:
        """The fact, worded as a remote node's."""
        others = "and the others " * self.together
        return AnswerRefused(self.handle, f"its update of {self.entry} {others}{NOT_FINITE}")


Train = Callable[[Cohort], Iterable[ClientUpdate]]
"""Yields the updates of some clients, one by one and in their order."""


def aggregate_round(
    steps: RoundSteps,
    state: ServerState,
    chosen: ClientsAssigned,
    cohort: Cohort,
    train: Train,
    streams: Streams,
) -> RoundResult:
    """Train every client from its cluster's model, and aggregate per cluster.

    theta_j <- server step of the aggregation of {u_i : i in S_j}

    Updates that are not finite are refused, and move nothing; a model that would not be finite
    stays. Refusals, choices and the new models' hash are in the events.

    Args:
        steps: what becomes of updates.
        state: before the round.
        chosen: which cluster each client trains.
        cohort: these clients, in name order; who sends nothing has taken no part.
        train: lets them train; called again for those whom the aggregation has in `again`.
        streams: of the round.
    """
    aggregation = steps.aggregation(state.clusters, streams.at("merge"))
    received, stored = dict[Handle, NoisySteps | None](), dict[Handle, ClientUpdate]()
    memories, losses = dict[Handle, Mapping[str, Params]](), dict[Handle, float]()
    refused, training = dict[Handle, RefusedUpdate](), cohort
    while True:
        for update in train(training):
            received[update.handle] = update.noise
            if update.kept is not None:
                memories[update.handle] = update.kept
            if update.loss is not None:
                losses[update.handle] = update.loss
            if entry := not_finite(update.update):
                refused[update.handle] = RefusedUpdate(update.handle, entry)
                if not steps.dp_accounted:
                    continue
                update = as_zero(update)
            if steps.stores_updates:
                stored[update.handle] = update
            for process in steps.post_processors:
                update = process(update)
            aggregation.add(update)
            del update  # before the next one comes
        aggregated = aggregation.result()
        if not aggregated.again:
            break
        clients = {client.handle: client for client in cohort}
        training = tuple(clients[handle] for handle in aggregated.again)
    sent = {handle: j for handle, j in chosen.clusters.items() if handle in received}
    models, states, overflown = _next_models(steps.server_step, state, aggregated.clusters)
    for handle in sorted(sent.keys() - refused.keys()):
        if entry := overflown.get(sent[handle]):
            refused[handle] = RefusedUpdate(handle, entry, together=True)
    accepted = {handle: j for handle, j in sent.items() if handle not in refused}
    chosen = replace(chosen, clusters=sent if steps.dp_accounted else accepted)
    counts = Counter(chosen.clusters.values())
    merged = ModelsMerged(model_hash(models), tuple(counts[j] for j in range(len(models))))
    after = replace(
        state,
        round_index=state.round_index + 1,
        clusters=models,
        assignment={**state.assignment, **chosen.clusters},
        states=states,
    )
    after = with_waiting_counts(after, aggregated.events, merged.participants, steps.patience)
    if refused or Stalled.key in states:
        after = _with_stalled(after, accepted, {sent[handle] for handle in refused})
    if memories:
        new = {handle: memories[handle] for handle in accepted if handle in memories}
        after = with_memory(after, new, state.round_index)
    facts = (
        *steps.noise_in(received),
        *aggregated.events,
        *abandonment_events(state, after),
        merged,
    )
    return RoundResult(
        after,
        (*(refusal.event for refusal in refused.values()), chosen, *facts),
        (*stored.values(),),
        losses,
    )


def as_zero(update: ClientUpdate) -> ClientUpdate:
    """Return the update with zeros in place of its numbers.

    Where noise is accounted for, how many updates there are must follow from nobody's data.
    """
    zero = {name: torch.zeros_like(value) for name, value in update.update.items()}
    return replace(update, update=zero)


def _next_models(
    step: ServerStep, state: ServerState, aggregated: Models
) -> tuple[Models, States, Mapping[int, str]]:
    """Return the next models, the states beside them, and which would not be finite.

    Those stay as they are, each with the first entry that would not be.
    """
    before = state.clusters
    models, states = step(before, aggregated, state.states)
    entries = {j: not_finite(model) for j, model in enumerate(models)}
    overflown = {j: name for j, name in entries.items() if name and not not_finite(before[j])}
    if not overflown:
        return models, states, {}
    unchanged = (before[j] if j in overflown else model for j, model in enumerate(models))
    return tuple(unchanged), state.states, overflown


class Stalled(ComponentState):
    """Clusters whose clients' latest updates were all refused, as none was finite.

    Training goes on, and nothing comes of it.
    """

    key = "stalled"
    clusters: frozenset[int] = frozenset()


def _with_stalled(
    state: ServerState, accepted: Mapping[Handle, int], refused: Collection[int]
) -> ServerState:
    """Return the state with the clusters whose clients' latest updates were all refused.

    Args:
        state: after the round.
        accepted: whose updates moved which clusters.
        refused: clusters of which updates were refused.
    """
    before = state.get_state(Stalled)
    now = (before.clusters | frozenset(refused)) - frozenset(accepted.values())
    return state if now == before.clusters else state.with_state(Stalled(clusters=now))


def divergences(state: ServerState) -> Mapping[int, str]:
    """Return why these cluster models diverged; nothing of those that did not.

    Numbers that are not finite, or a training of which nothing is accepted: such a model
    stays what it was, and what it shows says nothing of the clients who train it.
    """
    stalled = state.get_state(Stalled).clusters
    reasons = {
        j: has_non_finite_values(model) or (STALLED if j in stalled else "")
        for j, model in enumerate(state.clusters)
    }
    return {j: reason for j, reason in reasons.items() if reason}
