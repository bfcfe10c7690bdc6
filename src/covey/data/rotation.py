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
    grid = _came_from(degrees, *pixels.shape[-2:])
    return functional.grid_sample(pixels, grid, align_corners=False)


def _came_from(
    degrees: Float[Tensor, " images"], height: int, width: int
) -> Float[Tensor, "images height width two"]:
    """Return where in its input each output pixel was, as (across, down) in [-1, 1].

    The inverse rotation, with rows that count downwards and each axis scaled by its own
    size. To the bit what `functional.affine_grid` gives, which multiplies matrices of 3
    columns and takes as long as everything else together.
    """
    angle = degrees.deg2rad().view(-1, 1, 1)
    cos, sin = angle.cos(), angle.sin()
    across, down = _centres(width), _centres(height).unsqueeze(1)
    grid = torch.empty(len(degrees), height, width, 2)
    torch.add(across * cos, down * (-sin * (height / width)), out=grid[..., 0])
    torch.add(across * (sin * (width / height)), down * cos, out=grid[..., 1])
    return grid


def _centres(pixels: int) -> Float[Tensor, " pixels"]:
    """Return where the middles of so many pixels lie in [-1, 1]."""
    return torch.linspace(-1, 1, pixels) * (pixels - 1) / pixels
