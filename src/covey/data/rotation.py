"""Groups whose images are rotated."""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from covey.data.shift import Amounts, Pixels, Shift, in_chunks

__all__ = ["Rotation", "rotate"]

Images = UInt8[Tensor, "images channels height width"]


class Rotation(Shift):
    """Amounts are degrees, counter-clockwise."""

    def transform(
        self,
        pixels: Pixels,
        amounts: Amounts,
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Pixels:
        """Rotate about the centre, bilinearly; what enters is black."""
        return _rotate(pixels, amounts)


def rotate(images: Images, degrees: Float[Tensor, " images"]) -> Images:
    """Rotate counter-clockwise about the centre, bilinearly; what enters is black."""
    return in_chunks(_rotate, images, degrees)


def _rotate(pixels: Tensor, degrees: Tensor) -> Tensor:
    # An output pixel reads the input where it came from, so the matrix is the inverse
    # rotation; rows count downwards, and each axis is scaled to [-1, 1] by its own size.
    height, width = pixels.shape[-2:]
    angle = degrees.deg2rad()
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    across = torch.stack([cos, -sin * (height / width), zero], dim=1)
    down = torch.stack([sin * (width / height), cos, zero], dim=1)
    inverse = torch.stack([across, down], dim=1)
    grid = functional.affine_grid(inverse, list(pixels.shape), align_corners=False)
    return functional.grid_sample(pixels, grid, align_corners=False)
