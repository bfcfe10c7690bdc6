"""A bank of fixed filters over images: their responses, averaged in parts."""

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn

from covey.data.normalisation import normalised
from covey.errors import ModelError

__all__ = ["FilterBank", "Response", "check_image", "unit_filters"]

Response = Literal["signed", "absolute"]

CACHE = 2**22
"""Bytes of responses at a time."""

STEPS = 2**20


class FilterBank(nn.Module):
    """Each filter's responses r, averaged over pool x pool parts of the image.

    `signed`: relu(r) and relu(-r), two features each. `absolute`: |r|, their sum: an image
    and its negative are the same. Every image is normalised by itself first, so its
    brightness and contrast are gone.
    """

    filters: Tensor

    def __init__(
        self, filters: Float[Tensor, "filters c h w"], pool: int, response: Response
    ) -> None:
        super().__init__()
        self.pool, self.response = pool, response
        self.register_buffer("filters", filters, persistent=False)

    def forward(
        self, images: Float[Tensor, "batch c h w"]
    ) -> Float[Tensor, "batch features"]:
        """Return filters * pool**2 features, twice as many of signed responses."""
        # Responses of a few images stay in the processor's cache: three times as fast.
        bytes_each = 4 * len(self.filters) * math.prod(images.shape[2:])
        parts = normalised(images).split(max(1, CACHE // bytes_each))
        return torch.cat([self._pooled(part) for part in parts])

    def _pooled(
        self, images: Float[Tensor, "batch c h w"]
    ) -> Float[Tensor, "batch features"]:
        responses = nn.functional.conv2d(images.to(self.filters.dtype), self.filters)
        if self.response == "absolute":
            pooled = nn.functional.adaptive_avg_pool2d(responses.abs_(), self.pool)
            return pooled.flatten(1)
        both = nn.functional.adaptive_avg_pool2d(responses, self.pool).flatten(1)
        up = nn.functional.adaptive_avg_pool2d(responses.relu_(), self.pool).flatten(1)
        return torch.cat([up, up - both], dim=1)


def unit_filters(drawn: ndarray) -> Float[Tensor, "filters c h w"]:
    """Return the filters with mean zero and norm one, as whole steps of 2^-20.

    Machines round the last digits of a float64 otherwise, and agree on the steps.
    """
    centred = drawn - drawn.mean(axis=(1, 2, 3), keepdims=True)
    lengths = np.sqrt((centred**2).sum(axis=(1, 2, 3), keepdims=True))
    steps = np.rint(centred / lengths * STEPS)
    return torch.from_numpy((steps / STEPS).astype(np.float32))


def check_image(name: str, input_shape: tuple[int, ...], size: int) -> None:
    """Refuse what is no image, or a smaller one than a filter.

    Raises:
        ModelError: naming the feature map and the shape.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < size:
        raise ModelError(
            f"The feature map {name} needs images (channels, height, width) of at least "
            f"{size}x{size} pixels, but the inputs are {input_shape}. Lower its option "
            f"size, or choose a feature map that takes vectors."
        )
