"""What an engine does: train clients' copies of a model, and score examples with it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from covey.data.examples import Examples
from covey.rng import Streams
from covey.types import Params

__all__ = ["Engine", "Recipe", "Scored", "ScoringJob", "TrainingJob"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a client trains: plain or momentum SGD over shuffled mini-batches.

    Attributes:
        local_epochs: passes over the client's examples.
        local_steps: if positive, so many gradient steps instead of epochs.
    """

    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 25
    learning_rate: float = 0.05
    momentum: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class TrainingJob:
    """Train from `start` on `examples`; the order of examples comes from `streams`."""

    start: Params
    examples: Examples
    streams: Streams
    recipe: Recipe


@dataclass(frozen=True, slots=True, eq=False)
class ScoringJob:
    """Score every one of `examples` with the model `params`."""

    params: Params
    examples: Examples


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One model's answer on every example.

    Attributes:
        losses: in nats.
        predictions: the most probable class.
        log_probs: of every class.
    """

    losses: Float[Tensor, " examples"]
    predictions: Int[Tensor, " examples"]
    log_probs: Float[Tensor, "examples classes"]


@runtime_checkable
class Engine(Protocol):
    """A way to run many clients' local work; all of them agree to 1e-5."""

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        ...

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        ...
