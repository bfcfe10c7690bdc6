"""A recipe: how a client trains, and what it minimises."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from typing import Any, ClassVar

from torch import Tensor

from covey.components.capability import Capability, Claim
from covey.components.component import Component
from covey.engine.losses import Loss, TaskLoss
from covey.engine.optimizers import Optimizer, Sgd
from covey.engine.schedules import Constant, Schedule
from covey.errors import ConfigError
from covey.types import Params

__all__ = ["Objective", "Recipe", "RecipeNumbers"]


REMEMBERED = frozenset({Capability.STORED_UPDATES, Capability.CLUSTER_ISOLATION})
"""What is lost where a round hangs on what clients kept of earlier ones."""

LOSSES_SEEN = frozenset({Capability.SEPARATE_TRAINING, Capability.PLAIN_GRADIENTS})
"""What it takes to see the loss of every example in training."""


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

    kind: ClassVar[str] = "objective"
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

    def claim(self, part: str) -> Claim:
        """Return what it needs: clients apart, unless it works number by number."""
        claim = super().claim(part)
        together = self.elementwise or not self.corrects
        alone = frozenset() if together else {Capability.SEPARATE_TRAINING}
        lost = frozenset[Capability]()
        if self.remembers:
            lost = REMEMBERED
        return Claim(part, claim.requires | alone, claim.rules_out | lost)


@dataclass(frozen=True, slots=True)
class RecipeNumbers:
    """The part of a recipe that a server sends: it may differ from round to round.

    Attributes:
        local_epochs: passes over the client's examples.
        local_steps: if positive, so many gradient steps instead of epochs.
        drop_last: whether an epoch leaves out its last batch where that is short.
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
    least_steps: int = 0
    record_clip: float = 0.0
    record_noise: float = 0.0
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.record_noise > 0 and not self.record_clip > 0:
            raise ConfigError(
                f"Noise hides an example only if its gradient is clipped: record_noise "
                f"needs record_clip > 0, found {self.record_clip}. Set it, for example "
                f"to 1.0."
            )


@dataclass(frozen=True, slots=True)
class Recipe(RecipeNumbers):
    """How a client trains: its numbers, and the parts that can be replaced.

    One step: the gradient of the batch's mean loss, or DP-SGD's, plus what the objective
    adds, scaled down to `max_gradient_norm`; then the optimizer's.

    Attributes:
        momentum: short for `optimizer=Sgd(momentum=...)`.
        optimizer: begins anew in every round.
        schedule: of the learning rate; `at` follows it.
        loss: what is minimised; scores are the task's.
        objective: what is minimised beside it.
        personal: what a client's own model minimises beside the loss; None: no client has
            one. It begins at what the client kept of it, and its `memory` has the model
            that was sent to the client, as "shared".
        max_gradient_norm: if positive, the largest L2 norm of a step's gradient.
        keep_losses: whether a client keeps the losses of its records for itself.

    Raises:
        ConfigError: noise without a clip, or momentum beside another optimizer.
    """

    optimizer: Optimizer = field(default_factory=Sgd)
    schedule: Schedule = field(default_factory=Constant)
    loss: Loss = field(default_factory=TaskLoss)
    objective: Objective = field(default_factory=Objective)
    personal: Objective | None = None
    max_gradient_norm: float = 0.0
    keep_losses: bool = False
    momentum: InitVar[float] = 0.0

    def __post_init__(self, momentum: float) -> None:
        RecipeNumbers.__post_init__(self)
        if not momentum:
            return
        if not isinstance(self.optimizer, Sgd):
            raise ConfigError(
                f"momentum is short for optimizer=Sgd(momentum=...), found another "
                f"optimizer, {type(self.optimizer).__name__}. Leave one of the two out."
            )
        told = self.optimizer.model_copy(update={"momentum": momentum})
        object.__setattr__(self, "optimizer", told)

    def at(self, round_index: int, rounds: int) -> "Recipe":
        """Return the recipe of one round, whose learning rate stays.

        Raises:
            ConfigError: the schedule gives no rate.
        """
        if type(self.schedule) is Constant:
            return self
        factor = self.schedule.factor(round_index, rounds)
        if not (math.isfinite(factor) and factor >= 0):
            raise ConfigError(
                f"train.schedule must give a finite factor of the learning rate, not "
                f"below 0, found {factor} for round {round_index} of {rounds}. Correct "
                f"the schedule."
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
        return self.objective.remembers or personal or self.keep_losses

    @property
    def needs(self) -> frozenset[Capability]:
        """What its parts need of an engine, and of the task."""
        return frozenset[Capability]().union(*(c.requires for c in self.claims()))

    def claims(self, called: Callable[[str], str] = "its {}".format) -> Iterator[Claim]:
        """Yield what its parts need and rule out; `called` names a part by its field."""
        for name in ("optimizer", "loss", "objective"):
            part: Component = getattr(self, name)
            yield part.claim(called(name))
        if self.personal is not None:
            # DP-SGD's account is of the steps of what is sent, and no others
            plain = frozenset({Capability.PLAIN_GRADIENTS})
            claim = self.personal.claim(called("personal"))
            yield replace(claim, requires=claim.requires | plain)
        if self.keep_losses:
            yield Claim(called("keep_losses"), LOSSES_SEEN)
        if self.record_clip > 0:
            yield Claim(
                called("record_clip"),
                requires=frozenset(
                    {Capability.EXAMPLE_GRADIENTS, Capability.FULL_PRECISION}
                ),
                rules_out=frozenset({Capability.PLAIN_GRADIENTS}),
            )


def _sent(numbers: RecipeNumbers) -> dict[str, Any]:
    return {each.name: getattr(numbers, each.name) for each in fields(RecipeNumbers)}
