"""A shift of a user's own: another contrast per group, and some noise."""

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

import covey


class NoisyContrast(covey.Shift):
    """pivot + amount * (x - pivot) + N(0, noise^2), clipped to 0 to 255."""

    pivot: float = 128.0
    noise: float = Field(default=0.0, ge=0)

    def transform(self, pixels: Tensor, amounts: Tensor, generator: np.random.Generator) -> Tensor:
        drawn = generator.normal(0.0, self.noise, tuple(pixels.shape))
        factors = amounts.view(-1, 1, 1, 1)
        return self.pivot + factors * (pixels - self.pivot) + torch.from_numpy(drawn)
