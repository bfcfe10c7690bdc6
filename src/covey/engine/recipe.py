"""How a client trains: task, loss, objective, schedule, and the recipe that combines them.

A `Task` says what a model predicts: one class, several labels, a number, or a class per token.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int, Shaped
from pydantic import Field
from torch import (
    Tensor,
    _foreach_mul_,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_sub,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from covey.base.arguments import in_range
from covey.base.built_ins import component
from covey.base.components import (
    AboveZero,
    Component,
    Count,
    NotNegative,
    OwnFunction,
    Positive,
    Share,
)
from covey.base.errors import ConfigError, DataError, blamed
from covey.base.names import Params
from covey.data.examples import MASKED
from covey.data.source import Augment
from covey.engine.optimizers import Optimizer, Sgd

Outputs = Float[Tensor, "batch *outputs"]
Labels = Shaped[Tensor, "batch *label"]
Losses = Float[Tensor, " batch"]
Shares = Float[Tensor, " batch"]
Counts = Int[Tensor, " batch"]


MAX_CLASSES = 2**18
"""A model has so many outputs at most: tokens of the largest vocabularies."""

_NUMBERS = (Positive, Count, NotNegative)


@dataclass(frozen=True, slots=True)
class Task:
    """What a model predicts, and how its answers are judged.

    Attributes:
        name: as `model.task` has it.
        losses: each example's loss, in nats; what all engines minimise and report.
        predictions: what the model answers, in the shape of the labels.
        correct: from predictions and labels, the share of each example's labels that
            are right; None where nothing is simply right or wrong.
        log_probs: of every class, in nats; None without classes that exclude each other.
        outputs: how many numbers a model must give for labels like these. DataError
            where the labels are of another task.
        chance_loss: the loss of the best constant answer, by the number of outputs; infinite
            where it has no bound.
        num_tokens: how many tokens of each example have a label; None where labels are of
            whole examples.
    """

    name: str
    losses: Callable[[Outputs, Labels], Losses]
    predictions: Callable[[Outputs], Labels]
    correct: Callable[[Labels, Labels], Shares | None]
    log_probs: Callable[[Outputs], Float[Tensor, "batch classes"] | None]
    outputs: Callable[[Labels], int]
    chance_loss: Callable[[int], float]
    num_tokens: Callable[[Labels], Counts | None] = lambda _: None


def _nll(outputs: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]) -> Losses:
    """Return -log p(label | input)."""
    # Log-softmax leaves log-probabilities as they are, so cross-entropy is right for
    # models that end in log-softmax and for models that return logits.
    return nn.functional.cross_entropy(outputs.float(), labels, reduction="none")


def _classes(labels: Labels) -> int:
    if labels.dim() != 1 or labels.is_floating_point() or (labels < 0).any():
        raise _unfit("multiclass", "a class number from 0 per example", labels)
    return _num_classes(labels)


def _num_classes(labels: Labels) -> int:
    classes = 1 + int(labels.max()) if len(labels) else 0
    if classes > MAX_CLASSES:
        raise DataError(
            f"labels must be class numbers from 0 to below {MAX_CLASSES:,}, found {classes - 1:,}: "
            f"number the classes 0, 1, 2 ..."
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
    losses = nn.functional.binary_cross_entropy_with_logits(
        outputs.float(), labels.float(), reduction="none"
    )
    return losses.mean(dim=1)


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


def _half_square(outputs: Float[Tensor, "batch one"], labels: Float[Tensor, " batch"]) -> Losses:
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


TokenLabels = Int[Tensor, "batch tokens"]


def _num_tokens(labels: TokenLabels) -> Counts:
    return (labels != MASKED).sum(dim=1)


def _token_nll(outputs: Float[Tensor, "batch tokens classes"], labels: TokenLabels) -> Losses:
    """Return the mean over an example's own unmasked tokens of -log p(label | input).

    An example whose tokens are all masked has loss 0, and no gradient.
    """
    token_losses = nn.functional.cross_entropy(
        outputs.float().transpose(1, 2), labels, ignore_index=MASKED, reduction="none"
    )
    return token_losses.sum(dim=1) / _num_tokens(labels).clamp(min=1)


def _token_shares(predictions: TokenLabels, labels: TokenLabels) -> Shares:
    right = (predictions == labels).sum(dim=1)  # no prediction is MASKED
    return right.float() / _num_tokens(labels).clamp(min=1)


def _token_classes(labels: Labels) -> int:
    if (
        labels.dim() != 2
        or labels.is_floating_point()
        or ((labels < 0) & (labels != MASKED)).any()
        or (labels == MASKED).all(dim=1).any()
    ):
        wanted = f"a class number from 0 per token, {MASKED} for padding, and not padding alone"
        raise _unfit("tokens", wanted, labels)
    return _num_classes(labels)


TOKENS = Task(
    name="tokens",
    losses=_token_nll,
    predictions=lambda outputs: outputs.argmax(dim=2),
    correct=_token_shares,
    log_probs=lambda _: None,
    outputs=_token_classes,
    chance_loss=math.log,
    num_tokens=_num_tokens,
)
"""A class for every token of a sequence; models return (batch, tokens, classes)."""


TASKS: Mapping[str, Task] = MappingProxyType(
    {task.name: task for task in (MULTICLASS, MULTILABEL, REGRESSION, TOKENS)}
)
"""Every task, by `model.task`."""


def _unfit(task: str, expected: str, labels: Tensor) -> DataError:
    one = labels.dim() == 2 and labels.shape[1] == 1
    remedy = "pass labels.squeeze(1)" if one else "correct them"
    return DataError(
        f"model.task = {task!r} needs labels with {expected}, found shape {tuple(labels.shape)} of "
        f"{labels.dtype}: {remedy}, or choose among {', '.join(TASKS)}."
    )


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

    Attributes:
        mixes_examples: whether an example's loss depends on others of its batch: DP-SGD has no
            such batch.
        tasks: the values of `model.task` whose labels it takes.
    """

    mixes_examples: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ("multiclass", "multilabel", "regression", "tokens")

    def losses(self, outputs: Outputs, labels: Labels) -> Losses:
        """Return the loss of every example, from the model's outputs."""
        raise NotImplementedError("write losses(outputs, labels)")

    def of(self, task: Task) -> PerExample:  # noqa: ARG002 - one that follows the task does
        """Return the losses that a model of this task is trained with."""
        return self._checked

    def _checked(self, outputs: Outputs, labels: Labels) -> Losses:
        shapes = f"outputs of shape {tuple(outputs.shape)} and labels of {tuple(labels.shape)}"
        subject = f"On {shapes} the loss {self._name}"
        with blamed(ConfigError, subject, "correct it, or choose another train.loss."):
            values: Any = self.losses(outputs, labels)
        shape = values.shape if isinstance(values, Tensor) else type(values).__name__
        if shape != labels.shape[:1]:
            raise ConfigError(
                f"The loss {self._name} must return a number per example, shape "
                f"{tuple(labels.shape[:1])}, found {shape}: take no mean over the batch."
            )
        return values

    @property
    def _name(self) -> str:
        return type(self).__name__


@component("loss", "task", default=True)
class TaskLoss(Loss):
    """The loss by which the model is judged, whatever `model.task` is."""

    def of(self, task: Task) -> PerExample:
        """Return the task's own."""
        return task.losses


@component("loss", "cross-entropy")
class CrossEntropy(Loss):
    """The cross-entropy with labels of which a part is shared among all K classes.

    -sum_k w_k ((1 - e) [k = y] + e / K) log p_k

    Attributes:
        label_smoothing: e, the part of a label that is shared among all classes.
        class_weights: w, one number per class; []: 1 each. `balanced`: n / (K n_k), where
            n_k of all clients' n training examples are of class k: how many that are of each
            class, clients announce without noise.

    References:
        Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016.
    """

    tasks: ClassVar[tuple[str, ...]] = ("multiclass",)

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    class_weights: Literal["balanced"] | Annotated[tuple[AboveZero, ...], Field(strict=False)] = ()

    def balanced(self, counts: Int[Tensor, " classes"]) -> "CrossEntropy":
        """Return the loss with the weights that follow from how many examples classes have."""
        weights = counts.sum() / (len(counts) * counts.clamp(min=1))
        return self.model_copy(update={"class_weights": tuple(weights.tolist())})

    def losses(
        self, outputs: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]
    ) -> Losses:
        """Return torch's own."""
        known, smoothing = self.class_weights, self.label_smoothing
        if known == "balanced":
            raise ConfigError("class_weights must be numbers here, found 'balanced': list them.")
        weight = torch.tensor(known, device=outputs.device) if known else None
        return nn.functional.cross_entropy(
            outputs.float(), labels, weight, reduction="none", label_smoothing=smoothing
        )


class OwnLoss(Loss, OwnFunction):
    """A user's function of outputs and labels."""

    def losses(self, outputs: Outputs, labels: Labels) -> Losses:
        """Return what the function says."""
        return self.call(outputs, labels)

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", self.name)


class Schedule(Component):
    """What the learning rate is multiplied by in a round.

    A subclass says it with one method; its fields are its options::

        class Halving(covey.Schedule):
            every: int = 10

            def factor(self, round_index, rounds):
                return 0.5 ** (round_index // self.every)
    """

    @abstractmethod
    def factor(self, round_index: int, rounds: int) -> float:
        """Return the factor of a round, counted from 0, in a run of so many rounds."""


@component("schedule", "constant", default=True)
class Constant(Schedule):
    """The same rate in every round."""

    def factor(self, round_index: int, rounds: int) -> float:  # noqa: ARG002 - none matters
        """Return 1."""
        return 1.0


@component("schedule", "cosine")
class Cosine(Schedule):
    """A rate that falls along half a period of the cosine.

    factor(t) = final + (1 - final) (1 + cos(pi t / T)) / 2, of T rounds

    Attributes:
        final: share of the rate towards which it falls.

    References:
        Loshchilov, Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.
    """

    final: Share = 0.0

    def factor(self, round_index: int, rounds: int) -> float:
        """Return 1 at first, and nearly `final` in the last round."""
        wave = (1 + math.cos(math.pi * round_index / rounds)) / 2
        return self.final + (1 - self.final) * wave


class OwnSchedule(Schedule, OwnFunction):
    """A user's function of round and rounds."""

    def factor(self, round_index: int, rounds: int) -> float:
        """Return what the function says."""
        return self.call(round_index, rounds)


@component("objective", "plain", default=True)
class Objective(Component):
    """What a client minimises beside its loss; by itself, nothing.

    A subclass says what is added to the gradient of every batch, and what a client keeps
    for its next round; its fields are its options. FedDyn's client, for example::

        class Dynamic(covey.Objective):
            elementwise = True
            alpha: float = 0.1

            def correction(self, weights, start, memory):
                past = memory.get("past", [w * 0 for w in start])
                return [
                    self.alpha * (w - s) - h for w, s, h in zip(weights, start, past)
                ]

            def remember(self, memory, start, trained, steps, recipe):
                past = memory.get("past", {n: v * 0 for n, v in start.items()})
                moved = {n: trained[n] - start[n] for n in start}
                return {"past": {n: past[n] - self.alpha * moved[n] for n in start}}

    Attributes:
        elementwise: whether every number of the correction comes from the numbers at its
            own place alone. Only then can clients be trained together as one tensor (the
            vmap engine).
    """

    elementwise: ClassVar[bool] = False

    def correction(
        self,
        weights: Sequence[Tensor],  # noqa: ARG002 - a subclass's
        start: Sequence[Tensor],  # noqa: ARG002
        memory: Mapping[str, Sequence[Tensor]],  # noqa: ARG002
    ) -> Sequence[Tensor] | None:
        """Return what is added to the gradient of a step; None: nothing.

        Args:
            weights: what is trained, layer by layer, as it is now.
            start: the same as the round began.
            memory: what the client kept, and what the server sent along; each in the
                same order.
        """
        return None

    def remember(
        self,
        memory: Mapping[str, Params],  # noqa: ARG002
        start: Params,  # noqa: ARG002
        trained: Params,  # noqa: ARG002
        steps: int,  # noqa: ARG002
        recipe: "Recipe",  # noqa: ARG002
    ) -> Mapping[str, Params]:
        """Return what the client keeps for its next round, after so many steps."""
        return {}

    @property
    def corrects(self) -> bool:
        """Whether anything is ever added."""
        return type(self).correction is not Objective.correction

    @property
    def remembers(self) -> bool:
        """Whether clients keep anything for their next round."""
        return type(self).remember is not Objective.remember


@dataclass(frozen=True, slots=True)
class RecipeNumbers:
    """The part of a recipe that a server sends: it may differ from round to round.

    Attributes:
        local_epochs: passes over the client's examples.
        local_steps: if positive, so many gradient steps instead of epochs.
        drop_last: whether an epoch leaves out its last batch where that is short.
        least_steps: at least so many gradient steps, however few examples there are.
    """

    local_epochs: Positive = 1
    local_steps: Count = 0
    batch_size: Positive = 25
    learning_rate: NotNegative = 0.05
    least_steps: Count = 0
    drop_last: bool = False


@dataclass(frozen=True, slots=True)
class Recipe(RecipeNumbers):
    """How a client trains: its numbers, and the parts that can be replaced.

    One step: the gradient of the batch's mean loss, or DP-SGD's, plus what the objective
    adds, scaled down to `max_gradient_norm`; then the optimizer's.

    Attributes:
        optimizer: begins anew in every round.
        schedule: of the learning rate; `at` follows it.
        loss: what is minimised; scores are the task's.
        objective: what is minimised beside it.
        augment: changes the inputs of a batch before its step.
        personal: what a client's own model minimises beside the loss; None: no client has
            one. It begins at what the client kept of it, and its `memory` has the model
            that was sent to the client, as "shared".
        max_gradient_norm: if positive, the largest L2 norm of a step's gradient.
        own_layers: whether a client keeps entries of the model for itself.
        record_clip: if positive, the largest L2 norm of one example's gradient, by DP-SGD
            (`covey.engine.example_gradients`), where `batch_size` is what batches have on
            average, or in the one step of `sums_gradients`. No server sends it: a client
            bounds its examples as its own settings say.
        record_noise: of DP-SGD: standard deviation of the noise on the sum of a batch's
            clipped gradients, per coordinate and in units of `record_clip`.
        sums_gradients: one step a round, by the sum of the clipped gradients of all examples.

    Raises:
        ConfigError: a number is out of its range, or there is noise without a clip, which
            would hide nothing.
    """

    optimizer: Optimizer = field(default_factory=Sgd)
    schedule: Schedule = field(default_factory=Constant)
    loss: Loss = field(default_factory=TaskLoss)
    objective: Objective = field(default_factory=Objective)
    augment: Augment = field(default_factory=Augment)
    personal: Objective | None = None
    max_gradient_norm: NotNegative = 0.0
    own_layers: bool = False
    record_clip: NotNegative = 0.0
    record_noise: NotNegative = 0.0
    sums_gradients: bool = False

    def __post_init__(self) -> None:
        for number in fields(self):
            if number.type in _NUMBERS:
                in_range(number.name, getattr(self, number.name), number.type)
        if self.record_noise > 0 and not self.record_clip > 0:
            raise ConfigError(
                f"record_noise needs record_clip > 0, as it hides clipped gradients alone, found "
                f"{self.record_clip}: set it, for example to 1.0."
            )

    def at(self, round_index: int, rounds: int) -> "Recipe":
        """Return the recipe of one round, whose learning rate stays.

        Raises:
            ConfigError: the schedule gives no rate.
        """
        in_range("round_index", round_index, Count)
        in_range("rounds", rounds, Positive)
        if type(self.schedule) is Constant:
            return self
        factor = self.schedule.factor(round_index, rounds)
        if not (math.isfinite(factor) and factor >= 0):
            raise ConfigError(
                f"train.schedule must give a finite factor, 0 or more, found {factor} for round "
                f"{round_index} of {rounds}: correct it."
            )
        rate = self.learning_rate * factor
        return replace(self, learning_rate=rate, schedule=Constant())

    def with_numbers(self, numbers: RecipeNumbers) -> "Recipe":
        """Return the recipe of one round, by the numbers that a server sent."""
        return replace(self, **_sent(numbers), schedule=Constant())

    @property
    def numbers(self) -> RecipeNumbers:
        """What a server sends of it."""
        return RecipeNumbers(**_sent(self))

    @property
    def keeps_memory(self) -> bool:
        """Whether clients keep anything for their next round."""
        personal = self.personal is not None
        return self.objective.remembers or personal or self.own_layers

    @property
    def per_client(self) -> tuple[str, ...]:
        """The parts for which each client, or each example, must be trained by itself."""
        correcting = {"objective": self.objective, "personal": self.personal}
        needs = {
            "optimizer": not self.optimizer.elementwise,
            **{
                k: o is not None and o.corrects and not o.elementwise for k, o in correcting.items()
            },
            "record_clip": self.record_clip > 0,
            "augment": self.augment.changes,
        }
        return tuple(part for part, needed in needs.items() if needed)

    @property
    def by_batch(self) -> tuple[str, ...]:
        """The parts that look at whole batches, of which DP-SGD has none.

        Its account is of the steps of what is sent, and no others: a personal model's are
        not in it.
        """
        needs = {
            "loss": self.loss.mixes_examples,
            "personal": self.personal is not None,
            "augment": self.augment.changes,
        }
        return tuple(part for part, needed in needs.items() if needed)


def _sent(numbers: RecipeNumbers) -> dict[str, Any]:
    return {number.name: getattr(numbers, number.name) for number in fields(RecipeNumbers)}


@component("objective", "proximal")
class Proximal(Objective):
    """Stay near the model that the round began with: FedProx.

    f(w) + mu / 2 ||w - start||^2, so that mu (w - start) is added to every gradient

    Attributes:
        mu: how strong the pull is.

    References:
        Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, Federated Optimization in
        Heterogeneous Networks, 2020.
    """

    elementwise = True

    mu: NotNegative = 0.01

    def correction(
        self,
        weights: Sequence[Tensor],
        start: Sequence[Tensor],
        memory: Mapping[str, Sequence[Tensor]],  # noqa: ARG002 - the others' contract
    ) -> Sequence[Tensor] | None:
        """Return mu (w - start); nothing where mu is 0, to the bit."""
        if self.mu == 0:
            return None
        away = _foreach_sub(list(weights), list(start))
        _foreach_mul_(away, self.mu)
        return away


class OwnObjective(Objective, OwnFunction):
    """A user's function of weights, start and memory."""

    def correction(self, *args: Any, **named: Any) -> Sequence[Tensor] | None:  # noqa: ANN401
        """Return what the function says."""
        return self.call(*args, **named)
