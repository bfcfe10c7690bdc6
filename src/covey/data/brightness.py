"""Groups whose images are brighter or darker."""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from covey.data.shift import Amounts, Pixels, Shift, in_chunks

__all__ = ["Brightness", "brighten"]

Images = UInt8[Tensor, "images channels height width"]


class Brightness(Shift):
    """Amounts are factors; the result is clipped, and a negative factor inverts."""

    def transform(
        self,
        pixels: Pixels,
        amounts: Amounts,
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Pixels:
        """Multiply every pixel by the factor."""
        return _brighten(pixels, amounts)


def brighten(images: Images, factors: Float[Tensor, " images"]) -> Images:
    """Multiply pixels, seen as x in [0, 1], by a factor and clip.

    clip(f x) for f >= 0; 1 - clip(|f| x) for f < 0: a negative factor inverts.
    """
    return in_chunks(_brighten, images, factors)


def _brighten(pixels: Tensor, factors: Tensor) -> Tensor:
    factors = factors.view(-1, 1, 1, 1)
    bright = (pixels * factors.abs()).clamp_(0, 255)
    return torch.where(factors < 0, 255 - bright, bright)
