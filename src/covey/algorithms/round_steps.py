"""The replaceable steps of a round: train, evaluate, merge.

Rounds that are played again from what clients sent in them, not from a whole training.

The models that come out never saw who has left, and take less time than training again:
FedEraser keeps the length of each client's stored update, in the direction found now.

U'_i = |U_i| * u_i / ||u_i||

U_i is what the client sent in the same round of the old run and u_i what it finds now, by
a shorter training from the model that never saw the one who left.

References:
    Liu, Ma, Yang, Wang, Liu, FedEraser: Enabling Efficient Client-Level Data Removal from
    Federated Learning Models, 2021, Algorithm 1 and Eq. 1-4.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.aggregation.base import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    RecallableUpdates,
    RefusedUpdate,
    finite_updates,
    refusal_events,
)
from covey.aggregation.server import NoServerOptimizer, ServerStep
from covey.algorithms.local_clients import Backend, NoiseEvents, Train, Training, no_noise_events
from covey.algorithms.state import (
    NO_INPUTS,
    ClientMemory,
    Cohort,
    ObjectiveInputs,
    RoundResult,
    ServerState,
    abandonment_events,
    noting,
    with_memory,
    with_waiting_counts,
)
from covey.algorithms.sums import Records
from covey.base.events import ClientsAssigned, ModelsMerged
from covey.base.names import Handle, Params
from covey.base.params import flatten, model_hash, not_finite, scale, trained
from covey.base.rng import Streams
from covey.components.state import ComponentState, States
from covey.engine.recipe import Recipe
from covey.membership.truth import STALLED, has_non_finite_values


class Stalled(ComponentState):
    """Clusters whose clients' latest updates were all refused, as none was finite.

    Training goes on, and nothing comes of it.
    """

    key = "stalled"
    clusters: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that every strategy is composed of, but for the choice itself.

    Attributes:
        backend: how clients look at models, and choose.
        train: how they train; who yields no update, as a remote client may not answer, has
            taken no part.
        patience: rounds for which clients stay in a cluster whose merge makes them wait.
        recorded: where a run is played again with the choices that were made: by round,
            the cluster of each client.
        noise_events: what is told of the noise in the training.
        dp_accounted: whether noise is added that is accounted for. Then a client whose
            update is refused counts as one that sent 0; else it has taken no part.
        server_step: what the server makes of the aggregated models.
        longer: the training of a round that is to show how clients differ; None: the same.
        broadcast: what the server sends along to every client's objective, by name.
        records: clients' records as fixed features, where the model has them.
        repeatable: whether the same comes of it when clients train once more, as in a
            simulation: then a merge need not hold updates that it may come back to.
        frozen: the models after this round of clusters whose clients need not train, as the
            merge looks at each cluster by itself. Events are those of the whole round.
    """

    backend: Backend
    train: Train
    aggregate: Aggregator
    patience: int = 1
    recorded: Mapping[int, Mapping[Handle, int]] = field(
        default_factory=dict[int, Mapping[Handle, int]]
    )
    noise_events: NoiseEvents = no_noise_events
    dp_accounted: bool = False
    server_step: ServerStep = NoServerOptimizer().step
    longer: Training | None = None
    broadcast: Mapping[str, Params] = field(default_factory=dict[str, Params])
    frozen: Mapping[int, Params] = field(default_factory=dict[int, Params])
    records: Records | None = None
    repeatable: bool = False

    def trained_longer(self) -> "Steps":
        """Return the steps of a round whose training is to show differences."""
        if self.longer is None:
            return self
        train, noise_events = self.longer
        return replace(self, train=train, noise_events=noise_events)

    def inputs(self, state: ServerState) -> ObjectiveInputs:
        """Return what clients' objectives look at in a round."""
        memory = state.kept(ClientMemory)
        return ObjectiveInputs(memory, self.broadcast, state.round_index)

    def with_updates(self, updates: Sequence[ClientUpdate]) -> "Steps":
        """Return the steps of a round whose clients have trained already."""

        def train(
            _: object, cohort: Cohort, assignment: Mapping[Handle, int], *__: object
        ) -> Iterator[ClientUpdate]:
            asked = {client.handle for client in cohort}
            return (
                replace(each, cluster=assignment[each.handle])
                for each in updates
                if each.handle in asked
            )

        return replace(self, train=train)

    def train_and_aggregate(
        self, state: ServerState, cohort: Cohort, chosen: ClientsAssigned, streams: Streams
    ) -> RoundResult:
        """Train every client from its cluster's model, and merge (lines 13-17).

        Updates that are not finite are refused, and move nothing.
        """
        chosen = self.as_recorded(state, chosen)
        cohort = tuple(client for client in cohort if client.handle in chosen.clusters)
        after = state.with_choices(chosen.clusters)
        asked = tuple(c for c in cohort if chosen.clusters[c.handle] not in self.frozen)
        assignment, inputs = after.assignment, self.inputs(state)

        def made(by: Cohort) -> Iterator[ClientUpdate]:
            return self.train(after.clusters, by, assignment, streams, inputs)

        noted: dict[Handle, Mapping[str, Params] | None] = {}
        refused: list[RefusedUpdate] = []
        arriving = self._recallable(noting(made(asked), noted), refused, asked, made)
        aggregated = self.aggregate(state.clusters, arriving, streams.at("merge"))
        for _ in arriving:  # who trained took part, whether it was looked at or not
            pass
        merged = (self.frozen.get(j, model) for j, model in enumerate(aggregated.clusters))
        aggregated = replace(aggregated, clusters=tuple(merged))
        if missing := {client.handle for client in asked} - noted.keys():
            cohort = tuple(c for c in cohort if c.handle not in missing)
            chosen = _restricted_to(chosen, {client.handle for client in cohort})
            after = state.with_choices(chosen.clusters)
        noise = self.noise_events(cohort)
        sent = set(chosen.clusters.items())
        models, states, overflown = self._models_after(state, after, aggregated)
        refused += [
            RefusedUpdate(handle, j, overflown[j], together=True)
            for handle, j in sorted(sent)
            if j in overflown
        ]
        accepted = sent - {(each.handle, each.cluster) for each in refused}
        if refused and not self.dp_accounted:
            chosen = _restricted_to(chosen, {handle for handle, _ in accepted})
            after = state.with_choices(chosen.clusters)
        counts = _per_cluster(sent if self.dp_accounted else accepted, state)
        fact = ModelsMerged(model_hash(models), counts)
        after = with_waiting_counts(
            replace(after, states=states), aggregated.events, counts, self.patience
        )
        stalled = _stalled(state, _per_cluster(accepted, state), refused)
        after = with_memory(after, noted, {handle for handle, _ in accepted}).keeping(
            Stalled(clusters=stalled)
        )
        facts = (*noise, *aggregated.events, *abandonment_events(state, after), fact)
        return RoundResult(
            after.with_models(models), (*refusal_events(refused), chosen, *facts), aggregated.stored
        )

    def _models_after(
        self, state: ServerState, after: ServerState, aggregated: AggregationResult
    ) -> tuple[tuple[Params, ...], States, Mapping[int, str]]:
        """Return the next models, the states beside them, and which would not be finite.

        Those stay as they are, each with the first entry that would not be.
        """
        before = state.clusters
        models, states = self.server_step(before, aggregated.clusters, after.states)
        entries = {j: not_finite(model) for j, model in enumerate(models)}
        overflown = {j: name for j, name in entries.items() if name and not not_finite(before[j])}
        if not overflown:
            return models, states, {}
        kept = (before[j] if j in overflown else m for j, m in enumerate(models))
        return tuple(kept), after.states, overflown

    def _recallable(
        self,
        updates: Iterator[ClientUpdate],
        refused: list[RefusedUpdate],
        asked: Cohort,
        made: Callable[[Cohort], Iterator[ClientUpdate]],
    ) -> Iterable[ClientUpdate]:
        """Return all updates but those that are not finite, which it puts down."""
        finite = finite_updates(updates, refused, as_zero=self.dp_accounted)
        if not self.repeatable:
            return finite

        def again(handles: Sequence[Handle]) -> Iterator[ClientUpdate]:
            clients = {client.handle: client for client in asked}
            once_more = made(tuple(clients[handle] for handle in handles))
            return finite_updates(once_more, as_zero=self.dp_accounted)

        return RecallableUpdates(finite, again)

    def as_recorded(self, state: ServerState, chosen: ClientsAssigned) -> ClientsAssigned:
        """Return these choices, or those that were made when the round was played first."""
        then = self.recorded.get(state.round_index, {})
        kept = {handle: then.get(handle, j) for handle, j in chosen.clusters.items()}
        return replace(chosen, clusters=kept)


def _restricted_to(chosen: ClientsAssigned, handles: Collection[Handle]) -> ClientsAssigned:
    kept = {h: j for h, j in chosen.clusters.items() if h in handles}
    return replace(chosen, clusters=kept)


def _per_cluster(updates: Iterable[tuple[Handle, int]], state: ServerState) -> tuple[int, ...]:
    counted = Counter(j for _, j in updates)
    return tuple(counted[j] for j in range(len(state.clusters)))


def _stalled(
    state: ServerState, accepted: Sequence[int], refused: Sequence[RefusedUpdate]
) -> frozenset[int]:
    """Return the clusters whose clients' latest updates were refused, all of them."""
    tried = {each.cluster for each in refused}
    before = state.kept(Stalled).clusters
    return frozenset(
        j for j, count in enumerate(accepted) if count == 0 and (j in tried or j in before)
    )


SHARE = 0.5
"""Of the local training: what a calibration takes, at least one epoch."""


def calibration_recipe(usual: Recipe) -> Recipe:
    """Return the shorter training by which clients find new directions."""
    return replace(
        usual,
        local_epochs=max(1, round(usual.local_epochs * SHARE)),
        local_steps=math.ceil(usual.local_steps * SHARE),
    )


def calibrated_by(train: Train, stored: Mapping[Handle, Params]) -> Train:
    """Return a training step that calibrates what is stored of each client.

    A client without a stored update sends what it finds as it is.
    """

    def calibrating(
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        for each in train(clusters, cohort, assignment, streams, inputs):
            old = stored.get(each.handle)
            yield each if old is None else _as_long(each, old)

    return calibrating


def _as_long(found: ClientUpdate, stored: Params) -> ClientUpdate:
    """Return the update found, as long as the stored one."""
    length = _length(found.update)
    factor = _length(stored) / length if length > 0 else 0.0
    return replace(found, update=scale(found.update, factor))


def _length(update: Params) -> float:
    return float(flatten(trained(update)).norm())


def divergences(state: ServerState) -> Mapping[int, str]:
    """Return why these cluster models diverged; nothing of those that did not.

    Numbers that are not finite, or a training of which nothing is accepted: such a model
    stays what it was, and what it shows says nothing of the clients who train it.
    """
    stalled = state.kept(Stalled).clusters
    found = {
        j: has_non_finite_values(model) or (STALLED if j in stalled else "")
        for j, model in enumerate(state.clusters)
    }
    return {j: reason for j, reason in found.items() if reason}
