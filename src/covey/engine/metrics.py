"""Figures of one's own about models on unseen examples: they change no model."""

from abc import abstractmethod
from collections.abc import Iterable
from math import nan
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

import torch
from numpy import ndarray
from pydantic import Field
from torch import Tensor

from covey.base.built_ins import component
from covey.base.components import Component
from covey.engine.protocol import Scored


class Metric(Component):
    """A figure of the clients' models on examples that these never trained on.

    A subclass writes `measure`; its fields are its settings::

        class Confidence(covey.Metric):
            tasks = ("multiclass",)

            def measure(self, scored, labels):
                return scored.log_probs.amax(dim=1).exp()

    Attributes:
        tasks: the values of `model.task` whose answers it takes.
        higher_is_better: whether more of it is better, where rounds are compared by it.
        pooled: measured once, on the unseen examples of all clients together, each answered
            by its client's model; else the mean over clients, each by how many examples
            it has. In a class: `pooled: bool = True`.
    """

    tasks: ClassVar[tuple[str, ...]] = ("multiclass", "multilabel", "regression", "tokens")
    higher_is_better: ClassVar[bool] = True

    pooled: bool = False

    @property
    def label(self) -> str:
        """How results call it: its name, and the settings that are not at their defaults."""
        settings = ", ".join(f"{key}={value}" for key, value in self.own_settings().items())
        return f"{self.name} ({settings})" if settings else self.name

    @abstractmethod
    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return one number per example, of which the mean counts, or one for all of them.

        NaN where these examples have no such figure, as of one class alone: a mean leaves
        their client out.

        Args:
            scored: what the model answers on each of the examples.
            labels: theirs, in the same order.
        """


@component("metric", "mean-squared-error")
class MeanSquaredError(Metric):
    """The mean squared error of a model that answers a number."""

    tasks: ClassVar[tuple[str, ...]] = ("regression",)
    higher_is_better: ClassVar[bool] = False

    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return (prediction - label)^2 of every example."""
        return (scored.predictions.double() - labels.double()).square()


@component("metric", "top-k")
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


@component("metric", "f1")
class F1(Metric):
    """F1 of class 1 where there are two classes, else the mean over the classes (macro)."""

    tasks: ClassVar[tuple[str, ...]] = ("multiclass", "multilabel")

    pooled: bool = True

    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return 2 TP / (2 TP + FP + FN); NaN where all three are 0."""
        from sklearn.metrics import f1_score

        two = scored.log_probs is not None and scored.log_probs.shape[1] == 2
        how: Any = {"average": "binary" if two else "macro", "zero_division": nan}
        return torch.tensor(f1_score(labels.numpy(), scored.predictions.numpy(), **how))


@component("metric", "auroc")
class Auroc(Metric):
    """The area under the ROC curve of class 1 where there are two classes.

    Of more, the mean over the classes that some of the examples have and some have not.
    """

    tasks: ClassVar[tuple[str, ...]] = ("multiclass",)

    pooled: bool = True

    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return the figure of class 1 of two, or the mean over classes; NaN where it has none."""
        assert scored.log_probs is not None, "one class per example"  # noqa: S101 - as tasks say
        scores, known = scored.log_probs.double().exp(), labels.unique().tolist()
        among = [c for c in known if len(known) > 1 and (scores.shape[1] > 2 or c == 1)]
        figures = [self._of((labels == c).numpy(), scores[:, c].numpy()) for c in among]
        return torch.tensor(fmean(figures) if figures else nan, dtype=torch.float64)

    def _of(self, truth: ndarray, scores: ndarray) -> float:
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(truth, scores))


@component("metric", "average-precision")
class AveragePrecision(Auroc):
    """The average precision, of the same classes as `auroc`."""

    def _of(self, truth: ndarray, scores: ndarray) -> float:
        from sklearn.metrics import average_precision_score

        return float(average_precision_score(truth, scores))


@component("metric", "confusion")
class Confusion(Metric):
    """The confusion matrix at the end: how many examples of each class are taken for which."""

    tasks: ClassVar[tuple[str, ...]] = ("multiclass",)

    pooled: Literal[True] = True  # type: ignore[assignment] - counts have no mean

    def measure(self, scored: Scored, labels: Tensor) -> Tensor:
        """Return the counts per true and predicted class."""
        assert scored.log_probs is not None, "one class per example"  # noqa: S101 - as tasks say
        classes = scored.log_probs.shape[1]
        cells = torch.bincount(labels * classes + scored.predictions, minlength=classes**2)
        return cells.view(classes, classes)


def metric_named(name: str, labels: Iterable[str]) -> str | None:
    """Return the label that is meant: this very one, or the only one of a metric of this name."""
    meant = [label for label in labels if name in (label, label.partition(" (")[0])]
    return name if name in meant else meant[0] if len(meant) == 1 else None
