"""What a model is made by: a network's class or function, or a component with options."""

import inspect
from typing import Any, ClassVar, TypeGuard

from torch import nn

from covey.components.component import Component

__all__ = ["ModelFactory", "is_component"]


class ModelFactory(Component):
    """A model with options that are checked: write `build`.

    A function or a class that returns an `nn.Module` will do as well; then the options
    are its keyword arguments.
    """

    is_passed: ClassVar[bool] = False
    """Whether the model is in a program, and in no later process."""

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a freshly initialised network.

        Args:
            input_shape: of one example, without the batch.
            num_classes: how many outputs it has.
        """
        raise NotImplementedError

    def build_for(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        seed: int,  # noqa: ARG002 - for what all models of a run share
    ) -> nn.Module:
        """Return a freshly initialised network of the run with this seed.

        Override it where all of the run's models have something in common that is drawn.
        """
        return self.build(input_shape, num_classes)


def is_component(found: Any) -> TypeGuard[type[Component]]:  # noqa: ANN401 - anything
    """Say whether this is a component's class, and no network's or function."""
    return inspect.isclass(found) and issubclass(found, Component)
