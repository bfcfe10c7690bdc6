"""The loss of a client's training, as its engine saw it on the way."""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from covey.engine.recipe import Recipe

__all__ = ["TrainingLoss"]


@dataclass(slots=True)
class TrainingLoss:
    """The mean loss of the last epoch's batches, once somebody told it.

    Each batch is looked at before the step that it leads to, so that nothing is computed
    for this alone.

    Attributes:
        recipe: how the client trains.
        examples: how many it has.
        mean: in nats; None: not known, as where its gradients are private.
    """

    recipe: Recipe
    examples: int
    mean: float | None = None

    def note(self, losses: Float[Tensor, " steps"]) -> None:
        """Take in the loss of every step."""
        epoch = math.ceil(self.examples / self.recipe.batch_size)
        self.mean = float(losses[-epoch:].double().mean())
