"""What an engine does: train clients' copies of a model, and score examples with it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Shaped
from torch import Tensor

from covey.data.examples import Examples
from covey.errors import ConfigError
from covey.rng import Streams
from covey.types import Params

__all__ = ["Engine", "Recipe", "Scored", "ScoringJob", "TrainingJob"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a client trains: plain or momentum SGD over shuffled mini-batches, or DP-SGD.

    Attributes:
        local_epochs: passes over the client's examples.
        local_steps: if positive, so many gradient steps instead of epochs.
        least_steps: at least so many gradient steps, however few examples there are.
        record_clip: if positive, DP-SGD (`covey.engine.private`): the largest L2 norm of
            one example's gradient, and `batch_size` is what batches have on average.
        record_noise: standard deviation of the noise on the sum of a batch's clipped
            gradients, per coordinate and in units of `record_clip`.

    Raises:
        ConfigError: noise without a clip, which would hide nothing.
    """

    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 25
    learning_rate: float = 0.05
    momentum: float = 0.0
    least_steps: int = 0
    record_clip: float = 0.0
    record_noise: float = 0.0

    def __post_init__(self) -> None:
        if self.record_noise > 0 and not self.record_clip > 0:
            raise ConfigError(
                f"Noise hides an example only if its gradient is clipped: record_noise "
                f"needs record_clip > 0, found {self.record_clip}. Set it, for example "
                f"to 1.0."
            )


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


@runtime_checkable
class Engine(Protocol):
    """A way to run many clients' local work; all of them agree to 1e-5."""

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        ...

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        ...
