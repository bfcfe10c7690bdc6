"""Losses: what clients minimise; models are judged by the loss of their task."""

from collections.abc import Callable
from typing import Any, ClassVar

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from covey.components.capability import Capability
from covey.components.component import Component
from covey.components.section import NotNegative
from covey.engine.task import Labels, Losses, Outputs, Task
from covey.errors import ConfigError, CoveyError

__all__ = [
    "CrossEntropy",
    "Focal",
    "Huber",
    "Loss",
    "OwnLoss",
    "PerExample",
    "TaskLoss",
]

PerExample = Callable[[Outputs, Labels], Losses]


class Loss(Component):
    """What a client minimises, the mean over its batch.

    A subclass returns a loss per example, each from its own row alone; its fields are its
    options::

        class Margin(covey.Loss):
            margin: float = 1.0

            def losses(self, outputs, labels):
                return multi_margin_loss(
                    outputs, labels, margin=self.margin, reduction="none"
                )

    One that mixes the examples of a batch says
    `requires = frozenset({covey.Capability.PLAIN_GRADIENTS})`: DP-SGD has no such batch.
    """

    kind: ClassVar[str] = "loss"

    def losses(self, outputs: Outputs, labels: Labels) -> Losses:
        """Return the loss of every example, given the model's outputs."""
        raise ConfigError(
            f"The loss {type(self).__name__} must have a method losses(outputs, labels) "
            f"that returns one number per example, here {len(outputs)} and {len(labels)}. "
            f"Add it."
        )

    def of(self, task: Task) -> PerExample:  # noqa: ARG002 - one that follows the task does
        """Return the losses that a model of this task is trained with."""
        return self._checked

    def _checked(self, outputs: Outputs, labels: Labels) -> Losses:
        try:
            found: Any = self.losses(outputs, labels)
        except CoveyError:
            raise
        except Exception as error:
            raise ConfigError(
                f"The loss {self._name} raised {type(error).__name__} on outputs of shape "
                f"{tuple(outputs.shape)} and labels of shape {tuple(labels.shape)}: "
                f"{error}. Correct it, or choose another train.loss."
            ) from error
        shape = found.shape if isinstance(found, Tensor) else type(found).__name__
        if shape != labels.shape[:1]:
            raise ConfigError(
                f"The loss {self._name} must return one number per example, so shape "
                f"{tuple(labels.shape[:1])}, found {shape}. Take no mean over the batch."
            )
        return found

    @property
    def _name(self) -> str:
        return type(self).__name__


class TaskLoss(Loss):
    """The loss by which the model is judged, whatever `model.task` is."""

    def of(self, task: Task) -> PerExample:
        """Return the task's own."""
        return task.losses


class CrossEntropy(Loss):
    """The cross-entropy with labels of which a part is shared among all K classes.

    -sum_k ((1 - e) [k = y] + e / K) log p_k

    References:
        Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016.
    """

    requires = frozenset({Capability.EXCLUSIVE_CLASSES})

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)

    def losses(
        self, outputs: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]
    ) -> Losses:
        """Return torch's own."""
        return nn.functional.cross_entropy(
            outputs.float(),
            labels,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )


class Focal(Loss):
    """The cross-entropy, weighed down where the model is sure already.

    -(1 - p_y)^gamma log p_y

    References:
        Lin, Goyal, Girshick, He, Dollár, Focal Loss for Dense Object Detection, 2017.
    """

    requires = frozenset({Capability.EXCLUSIVE_CLASSES})

    gamma: NotNegative = 2.0

    def losses(
        self, outputs: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]
    ) -> Losses:
        """Return the cross-entropy times (1 - p)^gamma."""
        nll = nn.functional.cross_entropy(outputs.float(), labels, reduction="none")
        # p = 1 in floating point would leave the power of 0 without a slope
        unsure = (1 - (-nll).exp()).clamp(min=1e-7)
        return unsure**self.gamma * nll


class Huber(Loss):
    """A square near the label, and a line where it is far: outliers pull less.

    `e^2 / 2` where `|e| <= delta`, else `delta (|e| - delta / 2)`, of the error e

    References:
        Huber, Robust Estimation of a Location Parameter, 1964.
    """

    requires = frozenset({Capability.NUMBER_LABELS})

    delta: float = Field(default=1.0, gt=0)

    def losses(
        self, outputs: Float[Tensor, "batch one"], labels: Float[Tensor, " batch"]
    ) -> Losses:
        """Return torch's own."""
        return nn.functional.huber_loss(
            outputs[:, 0].float(), labels.float(), reduction="none", delta=self.delta
        )


class OwnLoss(Loss):
    """A user's function of outputs and labels."""

    function: Callable[..., Tensor]

    def losses(self, outputs: Outputs, labels: Labels) -> Losses:
        """Return what the function says."""
        return self.function(outputs, labels)

    @property
    def _name(self) -> str:
        made: Any = getattr(self.function, "func", self.function)
        return made.__name__
