"""How clients are reached: the only way to anybody's data.

Two classes can do it: `covey.algorithms.simulated.Simulated` holds everybody's examples and
plays all clients at once, `covey.algorithms.remote.Remote` sends each of them a request.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float64
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.server import Models
from covey.algorithms.selection import Losses, SelectionConfig, SelectionResult
from covey.algorithms.state import NO_INPUTS, Cohort, ObjectiveInputs, ServerState
from covey.base.events import Event
from covey.base.names import Handle
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
