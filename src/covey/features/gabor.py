"""Features of Gabor filters: edges and stripes of any direction, drawn from the seed."""

import math

import numpy as np
from torch import nn

from covey.components.section import Positive
from covey.features.base import FeatureMap
from covey.features.filters import FilterBank, Response, check_image, unit_filters
from covey.rng import Streams

__all__ = ["Gabor"]


class Gabor(FeatureMap):
    """filters * 2 * pool**2 features of random Gabor filters of size x size pixels.

    Direction, wavelength, phase, width and length of every filter are drawn, and a weight
    for each colour channel; of several channels a filter may so compare colours.

    Attributes:
        response: `signed`; or `absolute`: blind to which of two neighbours is the brighter,
            for clients of whom some see negatives, at half as many features.

    References:
        Daugman, Uncertainty relation for resolution in space, spatial frequency, and
        orientation optimized by two-dimensional visual cortical filters, 1985.
        Tramer and Boneh, Differentially Private Learning Needs Better Features, 2021:
        features without data under a linear model.
    """

    filters: Positive = 100
    size: Positive = 6
    pool: Positive = 3
    response: Response = "signed"

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:
        """Return the filters, drawn."""
        check_image("gabor", input_shape, self.size)
        draw = streams.at("gabor").generator()

        def each(low: float, high: float) -> np.ndarray:
            return draw.uniform(low, high, (self.filters, 1, 1))

        y, x = np.mgrid[: self.size, : self.size] - (self.size - 1) / 2
        direction, phase = each(0.0, math.pi), each(0.0, 2 * math.pi)
        wavelength = 2 ** each(math.log2(3), math.log2(2 * self.size))
        width = self.size * each(1 / 6, 1 / 2)
        length = width * each(1.0, 2.0)
        along = x * np.cos(direction) + y * np.sin(direction)
        across = y * np.cos(direction) - x * np.sin(direction)
        waves = np.cos(2 * math.pi * along / wavelength + phase)
        waves = waves * np.exp(-((along / width) ** 2 + (across / length) ** 2) / 2)
        channels = draw.standard_normal((self.filters, input_shape[0], 1, 1))
        return FilterBank(
            unit_filters(channels * waves[:, None]), self.pool, self.response
        )
