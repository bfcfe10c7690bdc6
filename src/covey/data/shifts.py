"""How a group's images differ from the file's: rotated, or brighter and darker."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor
from torch.nn import functional

from covey.errors import ConfigError

__all__ = ["Shift", "brighten", "rotate"]

Images = UInt8[Tensor, "images channels height width"]
Amounts = Float[Tensor, " images"]

CHUNK = 1_000
"""Images turned into floats at a time: bounds the memory, not the result."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A distribution of image transforms, uniform in [low, high].

    Attributes:
        low: the least amount: degrees of a rotation, or factor of a brightness.
        high: the greatest amount.
    """

    kind: Literal["rotation", "brightness", "none"]
    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low <= self.high < math.inf:
            raise ConfigError(
                f"A {self.kind} shift needs two finite numbers [low, high] with low <= "
                f"high, found [{self.low}, {self.high}]. Swap or correct them."
            )

    def draw(self, count: int, generator: np.random.Generator) -> Float64[Tensor, "_"]:
        """Return so many independent amounts."""
        return torch.from_numpy(generator.uniform(self.low, self.high, count))

    def apply(self, images: Images, amounts: Amounts) -> Images:
        """Return the images, each transformed by its own amount."""
        if self.kind == "none":
            return images
        return {"rotation": rotate, "brightness": brighten}[self.kind](images, amounts)


def rotate(images: Images, degrees: Amounts) -> Images:
    """Rotate counter-clockwise about the centre, bilinearly; what enters is black."""
    return _in_chunks(_rotate, images, degrees)


def brighten(images: Images, factors: Amounts) -> Images:
    """Multiply pixels, seen as x in [0, 1], by a factor and clip.

    clip(f x) for f >= 0; 1 - clip(|f| x) for f < 0: a negative factor inverts.
    """
    return _in_chunks(_brighten, images, factors)


def _in_chunks(
    transform: Callable[[Tensor, Tensor], Tensor], images: Images, amounts: Amounts
) -> Images:
    shifted = torch.empty_like(images, memory_format=torch.contiguous_format)
    for start in range(0, len(images), CHUNK):
        chunk = slice(start, start + CHUNK)
        pixels = transform(images[chunk].float(), amounts[chunk].float())
        shifted[chunk] = pixels.round_().clamp_(0, 255).byte()
    return shifted


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


def _brighten(pixels: Tensor, factors: Tensor) -> Tensor:
    factors = factors.view(-1, 1, 1, 1)
    bright = (pixels * factors.abs()).clamp_(0, 255)
    return torch.where(factors < 0, 255 - bright, bright)
