"""Axes along which features are whitened, by images of noise or by public examples; and norms.

    phi' = C^(-p/2) (phi - mean), with the mean and the covariance C of features of these images

No client's data are in either kind of images.

References:
    Field, Relations between the statistics of natural images and the response properties of
    cortical cells, 1987: the spectrum of photographs.
    Tramer and Boneh, Differentially Private Learning Needs Better Features, 2021.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from covey.base.errors import ModelError
from covey.base.rng import Streams

TINY = 1e-6


SLOPE = 1.2
"""Of amplitude against frequency: that of photographs is 1 to 1.5."""

SHARED = 0.6
"""Of the variance of each colour channel, what all have in common."""

LEAST_DIRECTION = 1e-7
"""Of the largest variance, the least that is divided by."""

MIN_IMAGES = 3_000

CHUNK = 500


class OneNorm(nn.Module):
    """Each record's features less their own mean, scaled to one L2 norm.

    What all records have in common takes most of a norm, and shows no class: half of it
    is gone with the mean, which no other record enters.

    Args:
        norm: of every record; one whose features are all alike becomes 0.
    """

    def __init__(self, norm: float) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, features: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d"]:
        """Return the features at their norm."""
        centred = features - features.mean(dim=1, keepdim=True)
        lengths = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
        return centred * (self.norm / lengths.clamp(min=TINY))


Axes = tuple[Float[Tensor, " d"], Float[Tensor, "d k"]]
"""The mean, and the transform of what is left without it."""


class Whitened(nn.Module):
    """C^(-p/2) (phi - mean), of which the axes are computed when they are first needed.

    Features of photographs have nearly all their variance in a few directions. Noise of
    one size drowns the others; along these axes it does not.
    """

    def __init__(self, axes: Callable[[], Axes]) -> None:
        super().__init__()
        self._axes = axes  # in no hash: the last digits differ by machine

    def forward(self, features: Float[Tensor, "batch d"]) -> Float[Tensor, "batch k"]:
        """Return the features, centred and whitened."""
        mean, transform = self._axes()
        return (features - mean.to(features)) @ transform.to(features)


@dataclass(frozen=True)
class Whitening:
    """How features are whitened: the same again is not computed again.

    Attributes:
        rows: return the features of the images, (images, d).
        key: distinguishes them from all others.
        power: p: 0 centres only, at 1 the covariance is the identity.
        directions: how many axes are kept, those of the largest variance; 0: all, turned
            back to where the features were.
    """

    rows: Callable[[], Tensor] = field(compare=False)
    key: str
    power: float
    directions: int = 0

    @lru_cache(maxsize=2)  # noqa: B019 - two are kept, and no more
    def axes(self) -> Axes:
        """Return the mean and C^(-p/2).

        Raises:
            ModelError: inputs are no images.
        """
        phi = self.rows().double().numpy()
        values, basis = np.linalg.eigh(np.cov(phi.T))
        scale = np.maximum(values, LEAST_DIRECTION * values[-1]) ** (-self.power / 2)
        transform = (basis * scale) @ basis.T
        if self.directions:
            largest = np.abs(basis).argmax(axis=0)  # an axis may point either way: one is agreed on
            basis = basis * np.sign(basis[largest, np.arange(len(basis))])
            transform = (basis * scale)[:, : -self.directions - 1 : -1]
        mean = torch.from_numpy(phi.mean(axis=0)).float()
        return mean, torch.from_numpy(transform.copy()).float()


def noise_features(
    features: Callable[[Tensor], Tensor], input_shape: tuple[int, ...], streams: Streams
) -> Float[Tensor, "images d"]:
    """Return the features of images of pink noise.

    Args:
        features: of a batch of images.
        input_shape: of one image: channels, height, width.
        streams: draw the images.

    Raises:
        ModelError: inputs are no images.
    """
    if len(input_shape) != 3:
        raise ModelError(
            f"model.whiten needs images (channels, height, width), found inputs "
            f"{input_shape}: name public examples of such inputs in model.whiten_from, or set "
            f"it to 0."
        )
    generator = streams.at("pink noise").generator()
    parts, count = list[Tensor](), MIN_IMAGES
    while sum(map(len, parts)) < count:
        images = pink_images(CHUNK, input_shape, generator)
        parts.append(features(images))
        count = max(MIN_IMAGES, 3 * parts[0].shape[1])
    return torch.cat(parts)


def pink_images(
    count: int, shape: tuple[int, ...], generator: np.random.Generator
) -> Float[Tensor, "count channels height width"]:
    """Return Gaussian images with amplitudes 1 / frequency^SLOPE and unit variance."""
    channels, height, width = shape
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = 1 / max(height, width)

    def drawn(layers: int) -> np.ndarray:
        white = generator.standard_normal((count, layers, height, width))
        pink = np.fft.ifft2(np.fft.fft2(white) / frequency**SLOPE).real
        return pink / pink.std()

    images = math.sqrt(SHARED) * drawn(1) + math.sqrt(1 - SHARED) * drawn(channels)
    return torch.from_numpy(images.astype(np.float32))
