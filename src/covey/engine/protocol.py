"""What an engine does: train clients' copies of a model, and score examples with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Shaped
from torch import Tensor

from covey.data.examples import Examples
from covey.engine.recipe import Recipe
from covey.rng import Streams
from covey.types import Params

__all__ = ["Engine", "Recipe", "Scored", "ScoringJob", "TrainingJob"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingJob:
    """Train from `start` on `examples`; the order of examples comes from `streams`.

    Attributes:
        memory: what the recipe's objective may look at, by name: what this client kept,
            and what the server sent along.
        on_losses: called once with each step's mean loss, in nats, before that step; never
            by an engine that does not know them, nor where they were to stay hidden behind
            noise. None: nobody asks.
    """

    start: Params
    examples: Examples
    streams: Streams
    recipe: Recipe
    memory: Mapping[str, Params] = field(default_factory=dict[str, Params])
    on_losses: Callable[[Float[Tensor, " steps"]], None] | None = None


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
        predictions: what the model answers: the most probable class, every label, or a
            number (`covey.engine.task`).
        correct: the share of an example's labels that are right; None where nothing is
            simply right or wrong.
        log_probs: of every class; None without classes that exclude each other.
    """

    losses: Float[Tensor, " examples"]
    predictions: Shaped[Tensor, "examples *label"]
    correct: Float[Tensor, " examples"] | None
    log_probs: Float[Tensor, "examples classes"] | None

    @property
    def accuracy(self) -> float | None:
        """The share of all labels that are right, from whole counts; None as `correct`."""
        if self.correct is None or not len(self.correct):
            return None
        labels = self.predictions[0].numel()
        right = int((self.correct.double() * labels).round().sum())
        return right / (labels * len(self.correct))


@runtime_checkable
class Engine(Protocol):
    """A way to run many clients' local work; all of them agree to 1e-5."""

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        ...

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        ...
