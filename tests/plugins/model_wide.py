"""Models of a user's own with options: a function, and a component."""

import math

from pydantic import Field
from torch import nn

import covey


def two_layers(input_shape: tuple[int, ...], num_classes: int, width: int = 16) -> nn.Module:
    """A function: its options are keyword arguments."""
    return TwoLayers(width=width).build(input_shape, num_classes)


class TwoLayers(covey.ModelFactory):
    """A component: its options are checked when the settings are read."""

    width: int = Field(default=16, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), self.width),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(self.width, num_classes),
        )
