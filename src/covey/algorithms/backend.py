"""The one way from a round to its clients: simulated here, or remote."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from covey.algorithms.base import Cohort, ServerState
from covey.algorithms.cluster_selection import (
    Losses,
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
)
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["Backend"]


@runtime_checkable
class Backend(Protocol):
    """How the clients of a round are reached: here, by an engine, or by messages.

    What one of them cannot do is a capability that it rules out, and no case for whoever
    asks.
    """

    def evaluate(
        self, models: tuple[Params, ...], cohort: Cohort, streams: Streams
    ) -> Losses:
        """Return every model's loss on every client's selection batch, in nats."""
        ...

    def nearest(
        self, state: ServerState, cohort: Cohort, streams: Streams
    ) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss."""
        ...

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        training: TrainAtOnce | None = None,
    ) -> SelectionResult:
        """Let every client take its cluster.

        Args:
            selection: how they choose.
            state: before the round.
            cohort: who chooses.
            streams: of the round.
            training: what remote clients train with; None: nobody is to train.
        """
        ...
