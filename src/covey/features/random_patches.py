"""Features of random patches as in Coates and Ng, of nobody's images."""

import numpy as np
from torch import nn

from covey.components.section import Positive
from covey.features.base import FeatureMap
from covey.features.filters import FilterBank, Response, check_image, unit_filters
from covey.rng import Streams

__all__ = ["RandomPatches"]

NEIGHBOURS, CHANNELS, FLOOR = 0.9, 0.9, 0.1


class RandomPatches(FeatureMap):
    """filters * 2 * pool**2 features of random whitened patches of size x size pixels.

    Coates and Ng take patches of the training images and whiten them by these images'
    covariance. Clients' patches would be their data, so patches are drawn instead: normal,
    with the covariance that pixels of photographs have anywhere (0.9 between neighbours,
    less by the same factor per pixel of distance, and 0.9 between channels), and whitened
    by that.

    Attributes:
        response: as of `gabor`.

    References:
        Coates, Ng and Lee, An Analysis of Single-Layer Networks in Unsupervised Feature
        Learning, 2011; Coates and Ng, The Importance of Encoding Versus Training with
        Sparse Coding and Vector Quantization, 2011 (random patches).
    """

    filters: Positive = 100
    size: Positive = 6
    pool: Positive = 3
    response: Response = "signed"

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:
        """Return the filters, drawn."""
        check_image("random-patches", input_shape, self.size)
        channels = input_shape[0]
        covariance = _covariance(channels, self.size)
        draw = streams.at("random-patches").generator()
        patches = draw.standard_normal((self.filters, len(covariance)))
        patches = patches @ np.linalg.cholesky(covariance).T
        # The patch and every piece of an image are whitened alike: twice half a whitening.
        whitened = np.linalg.solve(
            covariance + FLOOR * np.eye(len(covariance)), patches.T
        )
        shape = (self.filters, channels, self.size, self.size)
        return FilterBank(
            unit_filters(whitened.T.reshape(shape)), self.pool, self.response
        )


def _covariance(channels: int, size: int) -> np.ndarray:
    """Return the covariance of photographs' pixels, (channel, row, column) in order."""
    y, x = (each.reshape(-1) for each in np.mgrid[:size, :size])
    distances = np.hypot(y[:, None] - y, x[:, None] - x)
    between = np.full((channels, channels), CHANNELS) + (1 - CHANNELS) * np.eye(
        channels
    )
    return np.kron(between, NEIGHBOURS**distances)
