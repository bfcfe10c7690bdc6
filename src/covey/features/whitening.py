"""Features whose directions are told alike, by images that are nobody's."""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from covey.errors import ModelError
from covey.rng import Streams

__all__ = ["Whitened", "Whitening", "pink_images"]

SLOPE = 1.2
"""Of amplitude against frequency: that of photographs is 1 to 1.5."""

SHARED = 0.6
"""Of the variance of each colour channel, what all have in common."""

FLOOR = 1e-7
"""Of the largest variance, the least that is divided by."""

MIN_IMAGES = 3_000
CHUNK = 500


@dataclass(frozen=True)
class Whitening:
    """How features are whitened: the same again is not computed again.

    Attributes:
        features: what is whitened.
        key: tells it from all others.
        power: p: 0 centres only, at 1 the covariance is the identity.
        input_shape: of one image: channels, height, width.
        streams: draw the images.
    """

    features: nn.Module = field(compare=False)
    key: str
    power: float
    input_shape: tuple[int, ...]
    streams: Streams


class Whitened(nn.Module):
    """C^(-p/2) (phi - mean), of the mean and the covariance C on images of pink noise.

    Features of photographs have nearly all their variance in a few directions. Noise of
    one size drowns the others; along these axes it does not. No client's data are in it.

    Raises:
        ModelError: inputs are no images.

    References:
        Field, Relations between the statistics of natural images and the response
        properties of cortical cells, 1987: the spectrum of photographs.
        Tramer and Boneh, Differentially Private Learning Needs Better Features, 2021.
    """

    def __init__(self, how: Whitening) -> None:
        super().__init__()
        if len(how.input_shape) != 3:
            raise ModelError(
                f"model.options.whiten needs images (channels, height, width), as it "
                f"looks at the features of drawn ones; found inputs {how.input_shape}. Set "
                f"it to 0, and whiten features by data of your own that are public."
            )
        self.features = how.features
        # Plain attributes: the last digits, which differ by machine, are in no hash.
        self.mean, self.transform = _axes(how)

    def forward(
        self, inputs: Float[Tensor, "batch ..."]
    ) -> Float[Tensor, "batch features"]:
        """Return the features, centred and whitened."""
        found: Tensor = self.features(inputs)
        return (found - self.mean.to(found)) @ self.transform.to(found)


@lru_cache(maxsize=2)
def _axes(how: Whitening) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Return the mean and C^(-p/2)."""
    generator = how.streams.at("pink noise").generator()
    parts: list[np.ndarray] = []
    count = MIN_IMAGES
    while sum(map(len, parts)) < count:
        images = pink_images(CHUNK, how.input_shape, generator)
        parts.append(how.features(images).double().numpy())
        count = max(MIN_IMAGES, 3 * parts[0].shape[1])
    found = np.concatenate(parts)
    values, basis = np.linalg.eigh(np.cov(found.T))
    scale = np.maximum(values, FLOOR * values[-1]) ** (-how.power / 2)
    mean = torch.from_numpy(found.mean(axis=0)).float()
    return mean, torch.from_numpy((basis * scale) @ basis.T).float()


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
