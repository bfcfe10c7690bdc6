"""A model that a Python program passed: only such a program can pass it again."""

from typing import ClassVar

from torch import nn

from covey.errors import ConfigError
from covey.models.base import ModelFactory

__all__ = ["PassedModel"]


class PassedModel(ModelFactory):
    """The place, in settings, of a model that lives in a program."""

    is_passed: ClassVar[bool] = True

    def build(
        self,
        input_shape: tuple[int, ...],  # noqa: ARG002
        num_classes: int,  # noqa: ARG002
    ) -> nn.Module:
        """Refuse: the model is not here.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "The model of this run was passed by a Python program, and only such a "
            "program can pass it again: call covey.resume(folder, model, clients), or "
            "covey.audit(folder, model=..., clients=...)."
        )
