"""How clients are reached: the only way to anybody's data.

Two classes can do it: `covey.algorithms.simulated.Simulated` holds everybody's examples and
plays all clients at once, `covey.algorithms.remote.Remote` sends each of them a request.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from jaxtyping import Float64
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.server import Models
from covey.algorithms.selection import Losses, SelectionConfig, SelectionResult
from covey.algorithms.state import NO_INPUTS, Cohort, ObjectiveInputs, ServerState
from covey.algorithms.sum_cohorts import Summed
from covey.base.events import Event
from covey.base.names import Handle
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.engine.recipe import Recipe
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums

SPLIT_STEPS = 25
"""Least local steps of the warm start's split round: enough for the groups to show."""


def longer(recipe: Recipe) -> Recipe:
    """Return the recipe, with more local steps for clients whose usual round has few."""
    return replace(recipe, least_steps=SPLIT_STEPS)


@runtime_checkable
class Federation(Protocol):
    """What can be had from clients: choices, updates, and sums over their records.

    Where heads are solved, `ready` or `under_masks` gets the sums that are needed, and
    returns the federation that has them; `lacking`, `facts` and `summed` say what came.
    What has a body holds where clients are simulated.
    """

    @property
    def is_apart(self) -> bool:
        """Whether clients are on machines of their own, and may give no answer."""
        return False

    def training_longer(self) -> "Federation":
        """Return the same clients, who train until it shows how they differ."""
        ...

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
        inputs: ObjectiveInputs | None = None,
    ) -> SelectionResult:
        """Let every client take its cluster.

        Args:
            selection: how they choose.
            state: before the round.
            cohort: who chooses.
            streams: of the round.
            inputs: what remote clients train with, in the same message; None: none trains.
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

    @property
    def classes(self) -> int:
        """How many outputs a head has."""
        ...

    @property
    def lacking(self) -> frozenset[Handle]:
        """The clients whose answer to a request for sums is missing or refused."""
        return frozenset()

    @property
    def facts(self) -> tuple[Event, ...]:
        """What is to be recorded of the answers."""
        return ()

    @property
    def summed(self) -> Summed | None:
        """Whose sums came under masks; None: these clients use no masks."""
        return None

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return the mean features of every client that sends them."""
        ...

    def ready(self, known: ClusterSums, cohort: Cohort, d: int, round_index: int) -> "Federation":
        """Return the federation with these clients' sums at hand, but for who is `lacking`.

        Args:
            known: the sums so far.
            cohort: whose sums are needed.
            d: how many features there are, and a bias.
            round_index: the round that they are needed in.
        """
        del known, cohort, d, round_index
        return self

    def under_masks(
        self,
        known: ClusterSums,
        cohort: Cohort,
        may: Callable[[Collection[Handle]], Collection[frozenset[Handle]]],
        minimum: int,
        d: int,
        round_index: int,
    ) -> "Federation":
        """Return the federation with these clients' sums at hand, each group's together.

        Args:
            known: the sums so far.
            cohort: whose sums are needed.
            may: which groups of some clients may be summed.
            minimum: the fewest clients that a sum may be over.
            d: how many features there are, and a bias.
            round_index: the round that they are needed in.
        """
        del known, cohort, may, minimum, d, round_index
        return self

    def sums(self, clients: Iterable[Client], d: int) -> Sums:
        """Return the sums over these clients; all were made `ready`."""
        ...

    def with_digests(self, sums: ClusterSums) -> ClusterSums:
        """Return the sums with what has to be known of each client in them."""
        return sums

    def comparing(self, known: ClusterSums | None, *, last: bool) -> "Federation":
        """Return the same clients, who choose among heads and train nothing.

        Args:
            known: the sums from which they compare heads that never met them; None: they
                compare the models as they are.
            last: whether it is the last choice of a run.
        """
        ...
