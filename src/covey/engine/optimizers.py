"""Optimizers: how a client's weights follow its gradients in one round."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import (
    Tensor,
    _foreach_add,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_add_,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_mul,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_mul_,  # pyright: ignore[reportPrivateImportUsage]
    _foreach_sub_,  # pyright: ignore[reportPrivateImportUsage]
)

from covey.base.built_ins import component
from covey.base.components import Component, NotNegative, OwnFunction, Range
from covey.base.errors import ConfigError, blamed

Tensors = list[Tensor] | tuple[Tensor, ...]
StepFunction = Callable[[Tensors], None]
"""Change the weights in place, by these gradients."""
Decay = Annotated[float, Field(ge=0, lt=1)]


class Optimizer(Component):
    """A torch optimizer, made anew for every client and round.

    A subclass says how it is made; its fields are its options::

        class Lookahead(covey.Optimizer):
            k: int = 5

            def make(self, weights, learning_rate):
                return my_package.Lookahead(weights, lr=learning_rate, k=self.k)

    Where nothing but options is to be said, name the torch class itself:
    `train.optimizer = "my_package:Lookahead"`.

    Attributes:
        elementwise: whether every number of the weights moves by its own gradients alone.
            Only then can clients be trained together as one tensor (the vmap engine).
    """

    elementwise: ClassVar[bool] = False

    @abstractmethod
    def make(self, weights: Tensors, learning_rate: float) -> Any:  # noqa: ANN401 - torch's own type has untyped parts
        """Return a `torch.optim.Optimizer` over these weights."""

    def begin(self, weights: Tensors, learning_rate: float) -> StepFunction:
        """Return what takes the steps of one round."""
        optimizer = self.make(weights, learning_rate)

        def step(gradients: Tensors) -> None:
            for value, gradient in zip(weights, gradients, strict=True):
                value.grad = gradient
            optimizer.step()

        return step

    def begin_together(self, weights: Tensors, learning_rate: float) -> StepFunction:
        """Return what takes the steps of several clients, stacked along a first axis."""
        return self.begin(weights, learning_rate)

    @classmethod
    def around(cls, function: Callable[..., Any], options: Mapping[str, Any]) -> "Optimizer":
        """Return a class of torch's, or a user's that is made alike, as an optimizer."""
        return TorchOptimizer.model_validate({"function": function, **options}).tried()


@component("optimizer", "sgd", default=True)
class Sgd(Optimizer):
    """Stochastic gradient descent, as `torch.optim.SGD` defines it.

    d = gradient + weight_decay * weight
    velocity = momentum * velocity + d
    weight -= learning_rate * (d + momentum * velocity if nesterov else velocity)

    Attributes:
        momentum: weight of the past in a client's gradient steps.
        nesterov: whether the gradient is looked at a step ahead; needs momentum.
        weight_decay: share of the weights that is added to the gradient.

    References:
        Sutskever, Martens, Dahl, Hinton, On the Importance of Initialization and Momentum
        in Deep Learning, 2013.
    """

    elementwise = True

    momentum: Decay = 0.0
    nesterov: bool = False
    weight_decay: NotNegative = 0.0

    @model_validator(mode="after")
    def _looks_ahead(self) -> "Sgd":
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum > 0")
        return self

    def make(self, weights: Tensors, learning_rate: float) -> Any:  # noqa: ANN401
        """Return torch's own."""
        return torch.optim.SGD(weights, lr=learning_rate, **self.model_dump())

    def begin(self, weights: Tensors, learning_rate: float) -> StepFunction:
        """Return the same steps without an optimizer object: twice as fast, when small."""
        return self._steps(weights, learning_rate)

    def begin_together(self, weights: Tensors, learning_rate: float) -> StepFunction:
        """Return the same steps, rounded as the vmap engine always has."""
        return self._steps(weights, learning_rate, twice=True)

    def _steps(
        self, weights: Tensors, learning_rate: float, *, twice: bool = False
    ) -> StepFunction:
        """Return steps whose product and difference are rounded at once, or one by one."""
        velocity = [torch.zeros_like(value) for value in weights] if self.momentum else []

        def step(gradients: Tensors) -> None:
            with torch.no_grad():  # as a decorator it takes longer than the step of a tiny model
                if self.weight_decay:
                    gradients = _foreach_add(gradients, weights, alpha=self.weight_decay)
                along = gradients
                if velocity:
                    _foreach_mul_(velocity, self.momentum)
                    _foreach_add_(velocity, gradients)
                    along = velocity
                    if self.nesterov:
                        along = _foreach_add(gradients, velocity, alpha=self.momentum)
                if twice:
                    _foreach_sub_(weights, _foreach_mul(along, learning_rate))
                else:
                    _foreach_add_(weights, along, alpha=-learning_rate)

        return step


@component("optimizer", "adam")
class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
    weight -= learning_rate * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon)

    The means begin anew in every round.

    Attributes:
        betas: weights of the past in the two means.
        epsilon: added to the root of the second.
        weight_decay: share of the weights that is added to the gradient; of `adamw`, by
            which they shrink by themselves.

    References:
        Kingma, Ba, Adam: A Method for Stochastic Optimization, 2015.
    """

    elementwise = True
    in_torch: ClassVar[Callable[..., torch.optim.Optimizer]] = torch.optim.Adam

    betas: Range = (0.9, 0.999)
    epsilon: NotNegative = 1e-8
    weight_decay: NotNegative = 0.0

    @model_validator(mode="after")
    def _forgets(self) -> "Adam":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError("betas must be two numbers in [0, 1)")
        return self

    def make(self, weights: Tensors, learning_rate: float) -> Any:  # noqa: ANN401
        """Return torch's own."""
        made = {"betas": self.betas, "eps": self.epsilon, "weight_decay": self.weight_decay}
        # one call for all tensors, with the bits of one tensor after the other
        return self.in_torch(weights, learning_rate, foreach=True, **made)


@component("optimizer", "adamw")
class AdamW(Adam):
    """Adam, with weights that shrink by themselves.

    weight -= learning_rate * weight_decay * weight, before each of Adam's steps

    References:
        Loshchilov, Hutter, Decoupled Weight Decay Regularization, 2019.
    """

    in_torch: ClassVar[Callable[..., torch.optim.Optimizer]] = torch.optim.AdamW

    weight_decay: NotNegative = 0.01


class TorchOptimizer(Optimizer, OwnFunction):
    """Any class of torch's or of a user's that is made as `function(weights, lr=...)`."""

    def make(self, weights: Tensors, learning_rate: float) -> Any:  # noqa: ANN401
        """Return what the class makes."""
        with self._guard:
            return self.call(weights, lr=learning_rate)

    def tried(self) -> "TorchOptimizer":
        """Return itself, after a step with a matrix.

        Raises:
            ConfigError: there are no such options, or it asks for more than gradients.
        """
        with self._guard:
            self.begin([torch.ones(2, 2)], 0.1)([torch.ones(2, 2)])
        return self

    @property
    def _guard(self) -> AbstractContextManager[None]:
        subject = f"train.optimizer must take one step with these gradients, but {self.name}"
        return blamed(ConfigError, subject, "correct its settings, or choose another.")
