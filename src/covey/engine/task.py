"""What models are asked for: one class, several labels, or a number.

All that the engines and whoever reads their scores must know of it is in a `Task`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from covey.errors import DataError

__all__ = ["MULTICLASS", "MULTILABEL", "REGRESSION", "TASKS", "Task"]

Outputs = Float[Tensor, "batch outputs"]
Labels = Shaped[Tensor, "batch *label"]
Losses = Float[Tensor, " batch"]
Shares = Float[Tensor, " batch"]


@dataclass(frozen=True, slots=True)
class Task:
    """What a model is asked for, and how its answers are judged.

    Attributes:
        name: as `model.task` has it.
        losses: each example's loss, in nats; what all engines minimise and report.
        predictions: what the model answers, in the shape of the labels.
        correct: from predictions and labels, the share of each example's labels that
            are right; None where nothing is simply right or wrong.
        log_probs: of every class, in nats; None without classes that exclude each other.
        outputs: how many numbers a model must give for labels like these. DataError
            where the labels are of another task.
        chance_loss: the loss of whoever knows nothing, by the number of outputs; infinite
            where it has no bound.
    """

    name: str
    losses: Callable[[Outputs, Labels], Losses]
    predictions: Callable[[Outputs], Labels]
    correct: Callable[[Labels, Labels], Shares | None]
    log_probs: Callable[[Outputs], Float[Tensor, "batch classes"] | None]
    outputs: Callable[[Labels], int]
    chance_loss: Callable[[int], float]


def _nll(
    outputs: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]
) -> Losses:
    """Return -log p(label | input)."""
    # Log-softmax leaves log-probabilities as they are, so cross-entropy is right for
    # models that end in log-softmax and for models that return logits.
    return nn.functional.cross_entropy(outputs.float(), labels, reduction="none")


MAX_CLASSES = 2**18
"""A model has so many outputs at most: tokens of the largest vocabularies."""


def _classes(labels: Labels) -> int:
    if labels.dim() != 1 or labels.is_floating_point() or (labels < 0).any():
        raise _unfit("multiclass", "a class number from 0 per example", labels)
    classes = 1 + int(labels.max()) if len(labels) else 0
    if classes > MAX_CLASSES:
        raise DataError(
            f"labels must be class numbers from 0, {MAX_CLASSES:,} at most, found "
            f"{classes - 1:,}. Number the classes 0, 1, 2 ..."
        )
    return classes


MULTICLASS = Task(
    name="multiclass",
    losses=_nll,
    predictions=lambda outputs: outputs.argmax(dim=1),
    correct=lambda predictions, labels: (predictions == labels).float(),
    log_probs=lambda outputs: outputs.float().log_softmax(dim=1),
    outputs=_classes,
    chance_loss=math.log,
)
"""One of several classes; models return logits or log-probabilities."""


def _binary_nll(
    outputs: Float[Tensor, "batch labels"], labels: Int[Tensor, "batch labels"]
) -> Losses:
    """Return the mean over the labels of -log p(label | input)."""
    each = nn.functional.binary_cross_entropy_with_logits(
        outputs.float(), labels.float(), reduction="none"
    )
    return each.mean(dim=1)


def _attributes(labels: Labels) -> int:
    if (
        labels.dim() != 2
        or labels.is_floating_point()
        or not torch.isin(labels, torch.tensor([0, 1])).all()
    ):
        raise _unfit("multilabel", "as many whole numbers 0 or 1 per example", labels)
    return labels.shape[1]


MULTILABEL = Task(
    name="multilabel",
    losses=_binary_nll,
    predictions=lambda outputs: (outputs > 0).long(),
    correct=lambda predictions, labels: (predictions == labels).float().mean(dim=1),
    log_probs=lambda _: None,
    outputs=_attributes,
    chance_loss=lambda _: math.log(2),
)
"""Several labels, each 0 or 1 by itself; models return a logit for each."""


def _half_square(
    outputs: Float[Tensor, "batch one"], labels: Float[Tensor, " batch"]
) -> Losses:
    """Return (y - output)^2 / 2: -log N(y; output, 1), up to a constant.

    The half makes the mean of x x^T the Hessian of a linear model.
    """
    return (outputs[:, 0].float() - labels.float()).square() / 2


def _numbers(labels: Labels) -> int:
    if labels.dim() != 1 or not labels.is_floating_point() or labels.isnan().any():
        raise _unfit("regression", "one floating-point number per example", labels)
    return 1


REGRESSION = Task(
    name="regression",
    losses=_half_square,
    predictions=lambda outputs: outputs[:, 0],
    correct=lambda _, __: None,
    log_probs=lambda _: None,
    outputs=_numbers,
    chance_loss=lambda _: math.inf,
)
"""A number; models return one output. There is no accuracy."""


TASKS: Mapping[str, Task] = MappingProxyType(
    {task.name: task for task in (MULTICLASS, MULTILABEL, REGRESSION)}
)
"""Every task, by `model.task`."""


def _unfit(task: str, expected: str, labels: Tensor) -> DataError:
    return DataError(
        f"model.task = {task!r} needs labels with {expected}, found shape "
        f"{tuple(labels.shape)} of {labels.dtype}. Correct the labels, or choose the task "
        f"that fits them: one of {', '.join(TASKS)}."
    )
