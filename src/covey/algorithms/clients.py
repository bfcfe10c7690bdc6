"""The clients of a round: how they are reached, and how they choose and train.

A federation is the only way to anybody's data. Two classes are one:
`covey.algorithms.simulated.Simulated` holds everybody's examples and plays all clients at once,
`covey.algorithms.remote.Remote` sends each of them a request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Float64
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.server import Models
from covey.algorithms.round import RoundSteps, aggregate_round
from covey.algorithms.selection import BY_LOSS, Losses, SelectionConfig, SelectionResult, unchanged
from covey.algorithms.state import (
    NO_INPUTS,
    ClientMemory,
    Cohort,
    ObjectiveInputs,
    RoundResult,
    ServerState,
)
from covey.base.events import ClientsAssigned, Event
from covey.base.names import Handle, Params
from covey.base.rng import Streams
from covey.ridge.head import ClusterSums
from covey.ridge.sums import Sums


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A choice among ridge heads, of which clients train none.

    Attributes:
        sums: from which each head is found without the client that looks at it; None:
            clients compare the models as they are.
        last: whether it is the last choice of a run.
    """

    sums: ClusterSums | None
    last: bool = False


class SumsAnswer(NamedTuple):
    """Sums over groups of clients, of those who sent theirs.

    Attributes:
        sums: one of each group.
        missing: whose sums are in none: they gave no answer, were refused, or wait for others.
        events: what is to be recorded of it.
        together: under masks, the clients of each sum that was opened, whatever came of it.
        digests: of what each remote client sent, where it sent its own.
    """

    sums: tuple[Sums, ...] = ()
    missing: frozenset[Handle] = frozenset()
    events: tuple[Event, ...] = ()
    together: tuple[frozenset[Handle], ...] = ()
    digests: Mapping[Handle, str] = MappingProxyType({})


@runtime_checkable
class Federation(Protocol):
    """What can be had from clients: choices, updates, and sums over their records."""

    @property
    def is_remote(self) -> bool:
        """Whether they are on machines of their own, and may give no answer."""
        return False

    def evaluate(self, models: Models, cohort: Cohort, streams: Streams) -> Losses:
        """Return every model's loss on every client's selection batch, in nats."""
        ...

    def nearest(self, state: ServerState, cohort: Cohort, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss: argmin_j losses[i, j]."""
        ...

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        inputs: ObjectiveInputs | Comparison | None = None,
    ) -> SelectionResult:
        """Let every client take its cluster.

        Args:
            selection: how they choose.
            state: before the round.
            cohort: who chooses.
            streams: of the round.
            inputs: what remote clients train with, in the same message; None: none trains,
                as where they compare heads.
        """
        ...

    def train(
        self,
        models: Models,
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        """Yield an update per client that trains from its cluster's model, in cohort order."""
        ...

    def means(self, state: ServerState, cohort: Cohort) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return the mean features of every client that sends them."""
        ...

    def sums(self, state: ServerState, groups: Sequence[Cohort], minimum: int = 0) -> SumsAnswer:
        """Return the sums over each group of clients.

        Args:
            state: with the sums so far, which no new ones may make too large to be exact.
            groups: whose sums are needed.
            minimum: the fewest clients that a sum under masks is over, of one group; 0: there
                are no masks.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """What an algorithm may know of the run that it is part of.

    Attributes:
        draw_model: draws a fresh model.
        population: all clients that are known from the start, in name order.
        rounds: how many the run has.
        chance_loss: of the best constant answer, in nats; infinite: it has no bound.
        min_cohort: the fewest clients that a sum under masks is over; 0: sums are sent as
            they are.
    """

    draw_model: Callable[[Streams], Params]
    population: Cohort
    rounds: int
    chance_loss: float = inf
    min_cohort: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """Who takes part in a round; nothing else leads to anybody's data.

    Attributes:
        cohort: the clients, in name order; there may be none. Who yields no update, as a
            remote client may not answer, has taken no part.
        federation: how they are reached.
        steps: what becomes of their updates.
        setup: what may be known of the run.
        selection: how they choose among clusters.
        own_risks: whether only they know which risks they know.
        recorded: where a run is replayed with the choices that were made: by round, the
            cluster of each client.
        broadcast: what the server sends along to every client's objective, by name.
        wants_losses: whether the losses of their training are looked at.
    """

    cohort: Cohort
    federation: Federation
    steps: RoundSteps
    setup: Setup
    selection: SelectionConfig = BY_LOSS
    own_risks: bool = False
    recorded: Mapping[int, Mapping[Handle, int]] = field(
        default_factory=dict[int, Mapping[Handle, int]]
    )
    broadcast: Mapping[str, Params] = field(default_factory=dict[str, Params])
    wants_losses: bool = False

    def __len__(self) -> int:
        return len(self.cohort)

    def among(self, cohort: Cohort) -> "Clients":
        """Return these clients instead, reached in the same way."""
        return replace(self, cohort=cohort)

    def sent_along(self, **broadcast: Params) -> "Clients":
        """Return the same clients, who get these tensors for their objective by name."""
        return replace(self, broadcast=broadcast)

    def all_in_one(self, by: str) -> ClientsAssigned:
        """Return the fact that all of them train the first cluster's model."""
        return ClientsAssigned({client.handle: 0 for client in self.cohort}, by)

    def evaluate(self, models: Models, streams: Streams) -> Float[Tensor, "clients clusters"]:
        """Return every model's loss on every client's selection batch, in nats."""
        return self.federation.evaluate(models, self.cohort, streams)

    def choose(self, state: ServerState, streams: Streams) -> SelectionResult:
        """Let every client take its cluster, to train its model in this round."""
        recorded = self.recorded.get(state.round_index, {})
        inputs = replace(self._inputs(state), assigned=recorded)
        return self.federation.choose(self.selection, state, self.cohort, streams, inputs)

    def reassign(self, state: ServerState, streams: Streams) -> SelectionResult:
        """Let every client take its cluster once more, without training."""
        selection = replace(self.selection, after_choice=unchanged)  # no choice follows
        return self.federation.choose(selection, state, self.cohort, streams)

    def compare(self, state: ServerState, streams: Streams, heads: Comparison) -> SelectionResult:
        """Let every client take its cluster by the ridge heads, of which it trains none."""
        return self.federation.choose(self.selection, state, self.cohort, streams, heads)

    def nearest(self, state: ServerState, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss: argmin_j losses[i, j]."""
        return self.federation.nearest(state, self.cohort, streams)

    def train(
        self,
        models: Models,
        assignment: Mapping[Handle, int],
        streams: Streams,
        state: ServerState | None = None,
        least_steps: int = 0,
    ) -> Iterator[ClientUpdate]:
        """Yield what each client's training adds to the model of its cluster.

        Args:
            models: of all clusters.
            assignment: whose model each client trains.
            streams: of the round.
            state: before the round, where clients go on from what they kept; None: they
                begin anew, and remote ones keep nothing of it.
            least_steps: at least so many gradient steps; 0: as the recipe says.
        """
        anew = ObjectiveInputs(broadcast=self.broadcast, wants_losses=self.wants_losses)
        inputs = anew if state is None else self._inputs(state)
        inputs = replace(inputs, least_steps=least_steps)
        return self.federation.train(models, self.cohort, assignment, streams, inputs)

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
        clusters = chosen.clusters
        cohort = tuple(client for client in self.cohort if client.handle in clusters)
        train = partial(
            self.federation.train,
            state.clusters,
            assignment=clusters,
            streams=streams,
            inputs=self._inputs(state),
        )
        if updates is not None:
            placed = {
                update.handle: replace(update, cluster=clusters[update.handle])
                for update in updates
                if update.handle in clusters
            }
            train = partial(_trained_already, placed)
        return aggregate_round(self.steps, state, chosen, cohort, train, streams)

    def as_recorded(self, state: ServerState, chosen: ClientsAssigned) -> ClientsAssigned:
        """Return these choices, or those that were made when the round was first played."""
        then = self.recorded.get(state.round_index)
        if not then:
            return chosen
        clusters = {handle: then.get(handle, j) for handle, j in chosen.clusters.items()}
        return replace(chosen, clusters=clusters)

    def _inputs(self, state: ServerState) -> ObjectiveInputs:
        """Return what clients' objectives look at in a round."""
        memory, t = state.get_state(ClientMemory), state.round_index
        return ObjectiveInputs(memory, self.broadcast, t, self.wants_losses)


def _trained_already(
    updates: Mapping[Handle, ClientUpdate], cohort: Cohort
) -> Iterator[ClientUpdate]:
    return (updates[client.handle] for client in cohort if client.handle in updates)
