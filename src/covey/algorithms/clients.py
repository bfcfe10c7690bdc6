"""The clients of a round: who they are, and how they choose, train and are aggregated.

One loop consumes updates, in client-name order: finite or refused, transformed, aggregated.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxtyping import Float
from torch import Tensor

from covey.aggregation.base import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    RefusedUpdate,
    RepeatableUpdates,
    Transform,
    Updates,
    finite_updates,
    refusal_events,
)
from covey.aggregation.server import Models, NoServerOptimizer, ServerStep
from covey.algorithms.federation import Federation
from covey.algorithms.selection import BY_LOSS, SelectionConfig, SelectionResult, unchanged
from covey.algorithms.state import (
    ClientMemory,
    Cohort,
    ObjectiveInputs,
    RoundResult,
    ServerState,
    abandonment_events,
    recording_kept,
    with_memory,
    with_waiting_counts,
)
from covey.base.component_state import ComponentState, States
from covey.base.errors import ConfigError
from covey.base.events import ClientsAssigned, Event, ExposuresLimited, ModelsMerged
from covey.base.names import Handle, Params
from covey.base.params import model_hash, not_finite
from covey.base.rng import Streams
from covey.membership.truth import STALLED, has_non_finite_values
from covey.models.ridge_state import ClusterSums


class Stalled(ComponentState):
    """Clusters whose clients' latest updates were all refused, as none was finite.

    Training goes on, and nothing comes of it.
    """

    key = "stalled"
    clusters: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """What an algorithm may know of the run that it is part of.

    Attributes:
        draw_model: draws a fresh model.
        population: all clients that are known from the start, in name order.
        rounds: how many the run has.
        layers: the names of a model's parameters by layer, from input to output.
        chance_loss: of the best constant answer, in nats.
        min_cohort: the fewest clients that a sum under masks is over; 0: sums are sent as
            they are.
    """

    draw_model: Callable[[Streams], Params]
    population: Cohort
    rounds: int
    layers: Sequence[Sequence[str]]
    chance_loss: float
    min_cohort: int = 0


@dataclass(slots=True)
class Watch:
    """Whom a user's algorithm was handed in a round, and who trained in it.

    Attributes:
        part: what it is called in messages.
        known: the clients of the run.
        handed_out: those whom it was handed.
        clusters: by client, whose model it trained.
    """

    part: str
    known: frozenset[Handle]
    handed_out: set[Handle]
    clusters: dict[Handle, int] = field(default_factory=dict[Handle, int])

    def requested(self, cohort: Cohort) -> None:
        """Note which clients get requests; refuse clients that are not in the run (any more)."""
        handles = {client.handle for client in cohort}
        if strangers := handles - self.known - self.handed_out:
            raise ConfigError(
                f"Your {self.part} must ask the clients of its round, but it asked "
                f"{some(strangers)}, which this run does not have (any more). Keep no clients "
                f"from one round to the next."
            )
        self.handed_out |= handles


def some(handles: Collection[Handle]) -> str:
    """Return handles in words, three of them at most."""
    shown = sorted(handles)[:3]
    more = f" and {len(handles) - 3} more" if len(handles) > 3 else ""
    return f"client {', '.join(shown)}{more}"


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """Who takes part in a round; nothing else leads to anybody's data.

    Attributes:
        cohort: the clients, in name order; there may be none. Who yields no update, as a
            remote client may not answer, has taken no part.
        federation: how they are reached.
        aggregate: how their updates become the next models.
        setup: what may be known of the run.
        selection: how they choose among clusters.
        own_risks: whether only they know which risks they know.
        transforms: what a round's updates pass before they are aggregated, in this order.
        exposures: C_i / C of the clients whose clip is known to be below everybody's C.
        stores_updates: whether a round's raw updates are handed on, to be kept.
        patience: rounds for which clients stay in a cluster whose aggregation makes them wait.
        recorded: where a run is replayed with the choices that were made: by round, the
            cluster of each client.
        dp_accounted: whether noise is added that is accounted for. Then a client whose
            update is refused counts as one that sent 0; else it has taken no part.
        server_step: what the server makes of the aggregated models.
        broadcast: what the server sends along to every client's objective, by name.
        frozen: the models after this round of clusters whose clients need not train, as the
            aggregation looks at each cluster by itself. Events are those of the whole round.
        records_noise: whether the noise of the training is to be recorded with the round.
        losses: where the losses of clients' training are put, as far as they are known;
            None: nobody asks for them.
        watch: of a user's algorithm.
    """

    cohort: Cohort
    federation: Federation
    aggregate: Aggregator
    setup: Setup
    selection: SelectionConfig = BY_LOSS
    own_risks: bool = False
    transforms: tuple[Transform, ...] = ()
    exposures: Mapping[Handle, float] = field(default_factory=dict[Handle, float])
    stores_updates: bool = False
    patience: int = 1
    recorded: Mapping[int, Mapping[Handle, int]] = field(
        default_factory=dict[int, Mapping[Handle, int]]
    )
    dp_accounted: bool = False
    server_step: ServerStep = NoServerOptimizer().step
    broadcast: Mapping[str, Params] = field(default_factory=dict[str, Params])
    frozen: Mapping[int, Params] = field(default_factory=dict[int, Params])
    records_noise: bool = True
    losses: dict[Handle, float] | None = None
    watch: Watch | None = None

    def __len__(self) -> int:
        return len(self.cohort)

    def among(self, cohort: Cohort) -> "Clients":
        """Return these clients instead, reached in the same way."""
        return replace(self, cohort=cohort)

    def comparing(self, known: ClusterSums | None, *, last: bool = False) -> "Clients":
        """Return the same clients, who train nothing and choose among heads.

        Args:
            known: the sums from which each head is found without the client that looks at it;
                None: models are compared as they are.
            last: whether it is the last choice of a run.
        """
        return replace(self, federation=self.federation.comparing(known, last=last))

    def sent_along(self, **broadcast: Params) -> "Clients":
        """Return the same clients, who get these tensors for their objective by name."""
        return replace(self, broadcast=broadcast)

    def all_in(self, cluster: int, by: str) -> ClientsAssigned:
        """Return the fact that all of them train the model of one cluster."""
        return ClientsAssigned({c.handle: cluster for c in self.cohort}, by)

    def evaluate(self, models: Models, streams: Streams) -> Float[Tensor, "clients clusters"]:
        """Return every model's loss on every client's selection batch, in nats."""
        return self._observed().evaluate(models, self.cohort, streams)

    def choose(self, state: ServerState, streams: Streams) -> SelectionResult:
        """Let every client take its cluster, to train its model in this round."""
        recorded = self.recorded.get(state.round_index, {})
        inputs = replace(self._inputs(state), assigned=recorded)
        return self._observed().choose(self.selection, state, self.cohort, streams, inputs)

    def reassign(self, state: ServerState, streams: Streams) -> SelectionResult:
        """Let every client take its cluster once more, without training."""
        selection = replace(self.selection, after_choice=unchanged)  # no choice follows
        return self._observed().choose(selection, state, self.cohort, streams)

    def nearest(self, state: ServerState, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss: argmin_j losses[i, j]."""
        return self._observed().nearest(state, self.cohort, streams)

    def train(
        self,
        models: Models,
        assignment: Mapping[Handle, int],
        streams: Streams,
        state: ServerState | None = None,
    ) -> Iterator[ClientUpdate]:
        """Yield what each client's training adds to the model of its cluster.

        `state` is that before the round, where clients go on from what they kept; None:
        they begin anew, and remote ones keep nothing of it.
        """
        first_inputs = ObjectiveInputs(broadcast=self.broadcast)
        inputs = first_inputs if state is None else self._inputs(state)
        inputs = replace(inputs, wants_losses=self.losses is not None)
        for each in self._observed().train(models, self.cohort, assignment, streams, inputs):
            if self.watch is not None:
                self.watch.clusters[each.handle] = each.cluster
            if self.losses is not None and each.loss is not None:
                self.losses[each.handle] = each.loss
            yield each
            del each  # before the next one comes

    def train_and_aggregate(
        self,
        state: ServerState,
        chosen: ClientsAssigned,
        streams: Streams,
        updates: Sequence[ClientUpdate] | None = None,
    ) -> RoundResult:
        """Train every client from its cluster's model, and aggregate per cluster (lines 13-17).

        Updates that are not finite are refused, and move nothing. Choices, refusals and
        the new models' hash are in the events.

        Args:
            state: before the round.
            chosen: which cluster each client trains.
            streams: of the round.
            updates: what the clients have trained already; None: they train now.
        """
        chosen = self.as_recorded(state, chosen)
        cohort = tuple(client for client in self.cohort if client.handle in chosen.clusters)
        after = state.with_choices(chosen.clusters)
        training = tuple(c for c in cohort if chosen.clusters[c.handle] not in self.frozen)
        assignment = after.assignment

        def made(by: Cohort) -> Iterator[ClientUpdate]:
            if updates is None:
                return self.among(by).train(after.clusters, assignment, streams, state)
            handles = {client.handle for client in by}
            mine = (each for each in updates if each.handle in handles)
            return (replace(each, cluster=assignment[each.handle]) for each in mine)

        kept: dict[Handle, Mapping[str, Params] | None] = {}
        refused: list[RefusedUpdate] = []
        arriving = self._repeatable(recording_kept(made(training), kept), refused, training, made)
        stored = arriving = tuple(arriving) if self.stores_updates else arriving
        for transform in self.transforms:
            arriving = transform(arriving)
        aggregated = self.aggregate(state.clusters, arriving, streams.at("merge"))
        for _ in arriving:  # who trained took part, whether it was looked at or not
            pass
        models = (self.frozen.get(j, model) for j, model in enumerate(aggregated.clusters))
        aggregated = replace(aggregated, clusters=tuple(models))
        if missing := {client.handle for client in training} - kept.keys():
            cohort = tuple(c for c in cohort if c.handle not in missing)
            chosen = _restricted_to(chosen, {client.handle for client in cohort})
            after = state.with_choices(chosen.clusters)
        noise = self._noise_events(cohort) if self.records_noise else ()
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
        after = with_memory(after, kept, {handle for handle, _ in accepted}).keeping(
            Stalled(clusters=stalled)
        )
        facts = (*noise, *aggregated.events, *abandonment_events(state, after), fact)
        return RoundResult(
            after.with_models(models),
            (*refusal_events(refused), chosen, *facts),
            stored if isinstance(stored, tuple) else (),
        )

    def as_recorded(self, state: ServerState, chosen: ClientsAssigned) -> ClientsAssigned:
        """Return these choices, or those that were made when the round was first played."""
        then = self.recorded.get(state.round_index, {})
        kept = {handle: then.get(handle, j) for handle, j in chosen.clusters.items()}
        return replace(chosen, clusters=kept)

    def _noise_events(self, trained: Cohort) -> tuple[Event, ...]:
        """Return what is to be recorded of the noise in clients' training, and of their clips."""
        handles = (client.handle for client in trained)
        limited = {h: self.exposures[h] for h in handles if h in self.exposures}
        own = (ExposuresLimited(limited),) if limited else ()
        return (*self.federation.noise_events(trained), *own)

    def _observed(self) -> Federation:
        if self.watch is not None:
            self.watch.requested(self.cohort)
        return self.federation

    def _inputs(self, state: ServerState) -> ObjectiveInputs:
        """Return what clients' objectives look at in a round."""
        return ObjectiveInputs(state.kept(ClientMemory), self.broadcast, state.round_index)

    def _models_after(
        self, state: ServerState, after: ServerState, aggregated: AggregationResult
    ) -> tuple[Models, States, Mapping[int, str]]:
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

    def _repeatable(
        self,
        updates: Iterator[ClientUpdate],
        refused: list[RefusedUpdate],
        training: Cohort,
        made: Callable[[Cohort], Iterator[ClientUpdate]],
    ) -> Updates:
        """Return all updates but those that are not finite, which are added to `refused`.

        In a simulation the same comes of it when clients train once more: then an aggregation
        need not hold updates that it may come back to.
        """
        finite = finite_updates(updates, refused, as_zero=self.dp_accounted)
        if self.federation.is_apart:
            return finite

        def again(handles: Sequence[Handle]) -> Iterator[ClientUpdate]:
            clients = {client.handle: client for client in training}
            once_more = made(tuple(clients[handle] for handle in handles))
            return finite_updates(once_more, as_zero=self.dp_accounted)

        return RepeatableUpdates(finite, again)


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


def divergences(state: ServerState) -> Mapping[int, str]:
    """Return why these cluster models diverged; nothing of those that did not.

    Numbers that are not finite, or a training of which nothing is accepted: such a model
    stays what it was, and what it shows says nothing of the clients who train it.
    """
    stalled = state.kept(Stalled).clusters
    reasons = {
        j: has_non_finite_values(model) or (STALLED if j in stalled else "")
        for j, model in enumerate(state.clusters)
    }
    return {j: reason for j, reason in reasons.items() if reason}
