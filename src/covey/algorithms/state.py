"""What a server carries from round to round, and what clients keep for themselves.

What clients keep, where their objective needs it, stays on their side; a simulation plays
both, and keeps it with the state. Of remote clients the server has the round after which
each keeps it: the latest of which it took the client's update.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.server import Models
from covey.base.component_state import ComponentState, States, get_state, with_state, without
from covey.base.events import ClusterAbandoned, ClustersCollapsed, ClusterWaited, Event
from covey.base.figure import RiskEstimate
from covey.base.names import Handle, Params
from covey.base.params import not_finite
from covey.data.examples import Client
from covey.engine.protocol import Engine, TrainingJob, num_steps
from covey.engine.recipe import Recipe

S = TypeVar("S", bound=ComponentState)

Cohort = tuple[Client, ...]
"""The clients of one round, in name order; it may be empty."""


PERSONAL = "personal"
"""What a client calls the model of its own."""

LAYERS = "layers"
"""What a client calls the entries of the model that it keeps to itself."""

SHARED = "shared"
"""What the training of the own model calls the one that was sent."""


class RiskEstimates(ComponentState):
    """The red team's figures: per cluster a valid estimate, if there is one."""

    key = "risk-estimates"
    estimates: tuple[RiskEstimate | None, ...] = ()


class OwnRisks(ComponentState):
    """What each client found about each cluster by itself.

    It stays on the client's side; a simulation plays both.
    """

    key = "own-risks"
    risks: Mapping[Handle, tuple[RiskEstimate | None, ...]] = {}


class Waiting(ComponentState):
    """Clusters with too few clients to hide one among them.

    Attributes:
        rounds: per cluster, how many it has waited in a row.
        closed: clusters that waited for too long: not available.
    """

    key = "waiting"
    rounds: tuple[int, ...] = ()
    closed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """All that a server carries from one round to the next.

    Attributes:
        round_index: the next round to play.
        clusters: the cluster models theta_j.
        assignment: the latest choice of every client that has chosen, in order of handles.
        states: what algorithm and components keep beside that, each its own.
    """

    round_index: int
    clusters: Models
    assignment: Mapping[Handle, int]
    states: States = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        handles = sorted(self.assignment)
        if handles != list(self.assignment):
            in_order = {handle: self.assignment[handle] for handle in handles}
            object.__setattr__(self, "assignment", in_order)

    def get_state(self, kind: type[S]) -> S:
        """Return what a component keeps; its defaults, if that is nothing yet."""
        return get_state(self.states, kind)

    def with_state(self, *states: ComponentState) -> "ServerState":
        """Return the state in which components keep these."""
        states_now = self.states
        for state in states:
            states_now = with_state(states_now, state)
        return replace(self, states=states_now)

    def populated(self) -> tuple[bool, ...]:
        """Say which models somebody's latest choice trains; before the first one, all."""
        trained = set(self.assignment.values())
        return tuple(not trained or j in trained for j in range(len(self.clusters)))

    def available(self) -> tuple[bool, ...]:
        """Say which models may be chosen: the populated ones, unless they are closed.

        No client trains any other, and its low risk protects no client.
        """
        closed = self.get_state(Waiting).closed
        return tuple(somebody and j not in closed for j, somebody in enumerate(self.populated()))

    def risk_estimates(self) -> tuple[RiskEstimate | None, ...]:
        """Return each cluster's valid risk estimate, if there is one."""
        return self.get_state(RiskEstimates).estimates or (None,) * len(self.clusters)

    def known_risks(self, handle: Handle) -> tuple[RiskEstimate | None, ...]:
        """Return a client's figure of each cluster: its own, or the estimate."""
        measured = self.get_state(OwnRisks).risks.get(handle)
        if measured is not None:
            return measured
        cluster = self.assignment.get(handle)
        return tuple(
            estimate and estimate.known(inside=j == cluster)
            for j, estimate in enumerate(self.risk_estimates())
        )

    def with_choices(self, choices: Mapping[Handle, int]) -> "ServerState":
        """Return the state after these clients' choices."""
        return replace(self, assignment={**self.assignment, **choices})

    def without(self, left: Collection[Handle]) -> "ServerState":
        """Return the state with nothing in it that is kept on these clients."""
        stay = {h: j for h, j in self.assignment.items() if h not in left}
        return replace(self, assignment=stay, states=without(self.states, left))

    def with_models(self, clusters: Models) -> "ServerState":
        """Return the state after a round that ended in these models."""
        return replace(self, clusters=clusters, round_index=self.round_index + 1)


def initial_state(clusters: Models) -> ServerState:
    """Return the state before the first round."""
    return ServerState(0, clusters, {})


class RoundResult(NamedTuple):
    """A round's outcome: the next state, and the facts to remember before using it.

    Attributes:
        stored: the raw updates of the round, where they are to be kept.
        losses: of each client's training, as far as a simulation has them. They are recorded
            while a run is played, and recorded nowhere.
    """

    state: ServerState
    events: tuple[Event, ...]
    stored: tuple[ClientUpdate, ...] = ()
    losses: Mapping[Handle, float] = MappingProxyType({})

    def preceded_by(self, events: tuple[Event, ...]) -> "RoundResult":
        """Return the same outcome, with facts that come first."""
        return self._replace(events=(*events, *self.events))


def with_waiting_counts(
    state: ServerState, events: Sequence[Event], trained: Sequence[int], patience: int
) -> ServerState:
    """Count the rounds that each cluster has waited in a row, and close the impatient.

    A round in which no client trained it counts neither way. A closed cluster is not
    offered, so that its clients take their next best. The last one that is left is never
    closed.
    """
    waits = {event.cluster for event in events if isinstance(event, ClusterWaited)}
    if not waits and Waiting.key not in state.states:
        return state
    before = state.get_state(Waiting).rounds or (0,) * len(state.clusters)
    waiting = tuple(n + 1 if j in waits else 0 if trained[j] else n for j, n in enumerate(before))
    inhabited = frozenset(j for j, members in enumerate(state.populated()) if members)
    closed = frozenset(j for j in inhabited if waiting[j] >= patience)
    if closed == inhabited:
        closed = frozenset[int]()
    return state.with_state(Waiting(rounds=waiting, closed=closed))


def abandonment_events(before: ServerState, after: ServerState) -> tuple[Event, ...]:
    """Return what became of the clusters that no client chooses any more."""
    was, now = before.populated(), after.populated()
    gone = [j for j in range(len(now)) if was[j] and not now[j]]
    events: list[Event] = [ClusterAbandoned(j) for j in gone]
    left = {j for j, members in enumerate(now) if members}
    if gone and len(left) == 1:
        events.append(ClustersCollapsed(left.pop()))
    return tuple(events)


class ClientMemory(ComponentState):
    """What each client kept when its update was last accepted.

    Attributes:
        rounds: of remote clients, the round that this was.
    """

    key = "client-memory"
    kept: Mapping[Handle, Mapping[str, Mapping[str, Tensor]]] = {}
    rounds: Mapping[Handle, int] = {}


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveInputs:
    """What clients' training takes beside the weights: above all, to its objective.

    Attributes:
        memory: what each client kept.
        broadcast: what the server sends along to all of them, by name.
        round_index: in which remote clients keep what comes of it; negative: they do not.
        wants_losses: whether somebody asks for the loss of their training.
        assigned: clusters that clients take without a choice, where they train at once.
        least_steps: at least so many gradient steps; 0: as the recipe says.
    """

    memory: ClientMemory = field(default_factory=ClientMemory)
    broadcast: Mapping[str, Params] = field(default_factory=dict[str, Params])
    round_index: int = -1
    wants_losses: bool = False
    assigned: Mapping[Handle, int] = field(default_factory=dict[Handle, int])
    least_steps: int = 0

    def of(self, handle: Handle) -> Mapping[str, Params]:
        """Return what one client's objective looks at."""
        return {**self.memory.kept.get(handle, {}), **self.broadcast}


NO_INPUTS = ObjectiveInputs()


def with_memory(
    state: ServerState, new: Mapping[Handle, Mapping[str, Params]], now: int
) -> ServerState:
    """Return the state after the round `now`, in which these clients' updates were accepted.

    A refused update leaves a memory as it was.
    """
    before = state.get_state(ClientMemory)
    new_memories = {handle: is_new for handle, is_new in new.items() if is_new}
    known_rounds = {handle: now for handle, is_new in new.items() if not is_new}
    return state.with_state(
        ClientMemory(kept={**before.kept, **new_memories}, rounds={**before.rounds, **known_rounds})
    )


def personal_models(state: ServerState) -> Mapping[Handle, Params]:
    """Return the models that clients have of their own, or in part."""
    memories, use = state.get_state(ClientMemory).kept, state.assignment
    return {
        handle: own[PERSONAL]
        if PERSONAL in own
        else {**state.clusters[use.get(handle, 0)], **own[LAYERS]}
        for handle, own in memories.items()
        if PERSONAL in own or LAYERS in own
    }


def without_personal(job: TrainingJob) -> TrainingJob:
    """Return the job of a shared model: it never sees the client's own one."""
    apart = {PERSONAL, LAYERS}
    if apart.isdisjoint(job.memory):
        return job
    seen = {key: value for key, value in job.memory.items() if key not in apart}
    return replace(job, memory=seen)


def personal_training(
    engine: Engine, recipe: Recipe, jobs: Iterable[TrainingJob]
) -> Iterator[Params | None]:
    """Yield each client's own model as its training leaves it; None: it has none.

    v_i <- v_i - eta (grad f(v_i, xi_i) + what `recipe.personal` adds), from the model that
    was sent where there is no v_i yet; batches are those of the shared model.
    """
    if recipe.personal is None:
        return (None for _ in jobs)
    own = replace(recipe, objective=recipe.personal, personal=None)

    def beside(job: TrainingJob) -> TrainingJob:
        memory = {**without_personal(job).memory, SHARED: job.start}
        start = job.memory.get(PERSONAL, job.start)
        return replace(job, start=start, recipe=own, memory=memory, on_losses=None)

    return engine.train(map(beside, jobs))


def memory_after(
    job: TrainingJob, trained: Params, personal: Params | None, shared: Params
) -> Mapping[str, Params]:
    """Return what a client keeps for its next round.

    Its own model, and its own entries of the shared one, stay as they were where the new ones
    diverged.

    Args:
        job: what was trained.
        trained: the whole model.
        personal: its own model; None: it has none.
        shared: the model that was sent, which lacks its own entries.
    """
    recipe, before = job.recipe, job.memory
    steps, seen = num_steps(len(job.examples), recipe), without_personal(job).memory
    memory = {**recipe.objective.remember(seen, job.start, trained, steps, recipe)}
    own = {PERSONAL: personal}
    if recipe.own_layers:
        own[LAYERS] = {name: value for name, value in trained.items() if name not in shared}
    for key, new in own.items():
        last = before.get(key) if new is None or not_finite(new) else new
        memory |= {} if last is None else {key: last}
    return memory
