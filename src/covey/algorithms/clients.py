"""The clients of a round, and all that an algorithm can ask of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.algorithms.base import Cohort, RoundResult, ServerState
from covey.algorithms.client_memory import ObjectiveInputs
from covey.algorithms.cluster_selection import (
    BY_LOSS,
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
)
from covey.algorithms.local_training import losses_noted
from covey.algorithms.records import Records
from covey.algorithms.round_steps import Steps
from covey.errors import ConfigError
from covey.events import ClientsAssigned
from covey.heads import ClusterSums
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["Clients"]


@dataclass(frozen=True, slots=True)
class Clients:
    """Who takes part in a round; nothing else leads to anybody's data.

    Attributes:
        cohort: the clients, in name order; there may be none.
        steps: how they are evaluated and trained, and how their updates are aggregated.
        selection: how they choose among clusters.
        own_risks: whether only they know which risks they know.
    """

    cohort: Cohort
    steps: Steps
    selection: SelectionConfig = BY_LOSS
    own_risks: bool = False

    def __len__(self) -> int:
        return len(self.cohort)

    def among(self, cohort: Cohort) -> "Clients":
        """Return these clients instead, asked in the same way."""
        return replace(self, cohort=cohort)

    def asked_by(self, steps: Steps) -> "Clients":
        """Return the same clients, asked in another way."""
        return replace(self, steps=steps)

    def noting_losses(self, into: dict[Handle, float]) -> "Clients":
        """Return the same clients, of whose training the known losses are put down."""
        steps, longer = self.steps, self.steps.longer
        if longer is not None:
            longer = longer._replace(train=losses_noted(longer.train, into))
        noted = losses_noted(steps.train, into)
        return self.asked_by(replace(steps, train=noted, longer=longer))

    def comparing(self, known: ClusterSums | None, *, last: bool = False) -> "Clients":
        """Return the same clients, who train nothing and choose among heads.

        Args:
            known: the sums from which each head is told without whoever looks at it; None:
                models are compared as they are.
            last: whether it is the last choice of a run.
        """
        backend = self.records.judging(self.steps.backend, known, last=last)
        return self.asked_by(replace(self.steps, backend=backend))

    @property
    def records(self) -> Records:
        """Their records as fixed features.

        Raises:
            ConfigError: the model trains all its parameters.
        """
        if self.steps.records is None:
            raise ConfigError(
                "Sums over records need a model with features that do not train, found "
                "another. Set model.name = 'linear-head'."
            )
        return self.steps.records

    def sent_along(self, **broadcast: Params) -> "Clients":
        """Return the same clients, who get these tensors for their objective by name."""
        return self.asked_by(replace(self.steps, broadcast=broadcast))

    def all_in(self, cluster: int, by: str) -> ClientsAssigned:
        """Return the fact that all of them train the model of one cluster."""
        return ClientsAssigned({c.handle: cluster for c in self.cohort}, by)

    def evaluate(
        self, models: tuple[Params, ...], streams: Streams
    ) -> Float[Tensor, "clients clusters"]:
        """Return every model's loss on every client's selection batch, in nats."""
        return self.steps.backend.evaluate(models, self.cohort, streams)

    def choose(self, state: ServerState, streams: Streams) -> SelectionResult:
        """Let every client take its cluster, to train its model in this round."""
        given = self.steps.recorded.get(state.round_index, {})
        training = TrainAtOnce(given, self.steps.inputs(state))
        return self.steps.backend.choose(
            self.selection, state, self.cohort, streams, training
        )

    def settle(self, state: ServerState, streams: Streams) -> SelectionResult:
        """Let every client take its cluster once more, without training."""
        return self.steps.backend.choose(self.selection, state, self.cohort, streams)

    def nearest(self, state: ServerState, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss: argmin_j losses[i, j]."""
        return self.steps.backend.nearest(state, self.cohort, streams)

    def train(
        self,
        models: tuple[Params, ...],
        assignment: Mapping[Handle, int],
        streams: Streams,
        state: ServerState | None = None,
    ) -> Iterator[ClientUpdate]:
        """Yield what each client's training adds to the model of its cluster.

        `state` is that before the round, where clients go on from what they kept; None:
        they begin anew, and remote ones keep nothing of it.
        """
        beginning = ObjectiveInputs(broadcast=self.steps.broadcast)
        inputs = beginning if state is None else self.steps.inputs(state)
        return self.steps.train(models, self.cohort, assignment, streams, inputs)

    def train_and_aggregate(
        self,
        state: ServerState,
        chosen: ClientsAssigned,
        streams: Streams,
        updates: Sequence[ClientUpdate] | None = None,
    ) -> RoundResult:
        """Train every client from its cluster's model, and aggregate per cluster.

        Updates that are not finite are refused, and move nothing. Choices, refusals and
        the new models' hash are in the events.

        Args:
            state: before the round.
            chosen: which cluster each client trains.
            streams: of the round.
            updates: what the clients have trained already; None: they train now.
        """
        steps = self.steps if updates is None else self.steps.with_updates(updates)
        return steps.train_and_aggregate(state, self.cohort, chosen, streams)
