"""Figures of one's own about models on unseen examples: they change no model."""

from abc import abstractmethod
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from covey.base.components import Component
from covey.engine.protocol import Scored


class Metric(Component):
    """A figure of every client's model on examples that it never trained on.

    A subclass writes `measure`; its fields are its settings::

        class Confidence(covey.Metric):
            tasks = ("multiclass",)

            def measure(self, scored, labels):
                return scored.log_probs.amax(dim=1).exp()

    Attributes:
        tasks: the values of `model.task` whose answers it takes.
    """

    tasks: ClassVar[tuple[str, ...]] = ("multiclass", "multilabel", "regression", "tokens")

    @property
    def label(self) -> str:
        """How results call it: its name, and the settings that are not at their defaults."""
        settings = ", ".join(f"{key}={value}" for key, value in self.own_settings().items())
        return f"{self.name} ({settings})" if settings else self.name

    @abstractmethod
    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return one number per example, of which the mean counts, or one for all of them.

        Args:
            scored: what the model answers on each of the examples.
            labels: theirs, in the same order.
        """


class MeanSquaredError(Metric):
    """The mean squared error of a model that answers a number."""

    tasks: ClassVar[tuple[str, ...]] = ("regression",)

    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return (prediction - label)^2 of every example."""
        return (scored.predictions.double() - labels.double()).square()


class TopK(Metric):
    """The share of examples whose class is among the k most probable ones.

    Of classes that are equally probable the first counts as the more probable, so that
    k = 1 is accuracy.

    Attributes:
        k: how many classes a model may name.
    """

    tasks: ClassVar[tuple[str, ...]] = ("multiclass",)

    k: Annotated[int, Field(ge=1)] = 5

    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return 1 for every example that is right, else 0; NaN where no order is known."""
        log_probs = scored.log_probs
        assert log_probs is not None, "one class per example"  # noqa: S101 - as tasks say
        ranked = log_probs.argsort(dim=1, descending=True, stable=True)[:, : self.k]
        right = (ranked == labels[:, None]).any(dim=1).double()
        return torch.where(log_probs.isnan().any(dim=1), torch.nan, right)
