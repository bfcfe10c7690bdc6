"""Fixed maps from examples to features: Gabor filters, random patches, a user's, or as they are."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray
from torch import Tensor, nn

from covey.base.built_ins import component
from covey.base.components import Component, OwnFunction, Positive
from covey.base.rng import Streams
from covey.data.examples import normalised
from covey.models.build import check_image, made_module, refuse_module

CACHE = 2**22
"""Bytes of responses at a time."""

STEPS = 2**20

REMEDY = "correct it: beside its settings it takes input_shape or nothing."

REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class FeatureMap(Component):
    """A fixed map from examples to features; no client's data are in it.

    Write `build`. A function that returns an `nn.Module`, such as a frozen backbone, will
    do as well; it takes no arguments or `input_shape`, beside its options.
    """

    @classmethod
    def around(cls, function: Callable[..., Any], options: Mapping[str, Any]) -> "FeatureMap":
        """Return a user's function that makes a module as a feature map."""
        refuse_module(function, "FeatureMap")
        return FeatureFunction.model_validate({"function": function, **options})

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:
        """Return a module that maps a float batch `(n, *input_shape)` to `(n, d)` float32.

        Args:
            input_shape: of one example, without the batch.
            streams: where all that is drawn comes from: the same for all models of a run.
        """
        raise NotImplementedError


Response = Literal["signed", "absolute"]
Drawn = Float64[ndarray, "filters c h w"]


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

    def forward(self, images: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch features"]:
        """Return filters * pool**2 features, twice as many of signed responses."""
        # Responses of a few images stay in the processor's cache: three times as fast.
        bytes_each = 4 * len(self.filters) * math.prod(images.shape[2:])
        parts = normalised(images).split(max(1, CACHE // bytes_each))
        return torch.cat([self._pooled(part) for part in parts])

    def _pooled(self, images: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch features"]:
        responses = nn.functional.conv2d(images.to(self.filters.dtype), self.filters)
        if self.response == "absolute":
            pooled = nn.functional.adaptive_avg_pool2d(responses.abs_(), self.pool)
            return pooled.flatten(1)
        both = nn.functional.adaptive_avg_pool2d(responses, self.pool).flatten(1)
        up = nn.functional.adaptive_avg_pool2d(responses.relu_(), self.pool).flatten(1)
        return torch.cat([up, up - both], dim=1)


def unit_filters(drawn: Drawn) -> Float[Tensor, "filters c h w"]:
    """Return the filters with mean zero and norm one, as whole steps of 2^-20.

    Machines round the last digits of a float64 otherwise, and agree on the steps.
    """
    centred = drawn - drawn.mean(axis=(1, 2, 3), keepdims=True)
    lengths = np.sqrt((centred**2).sum(axis=(1, 2, 3), keepdims=True))
    steps = np.rint(centred / lengths * STEPS)
    return torch.from_numpy((steps / STEPS).astype(np.float32))


class FilterMap(FeatureMap):
    """filters * 2 * pool**2 features of random filters of size x size pixels: write `draw`.

    Attributes:
        filters: how many.
        size: of one side, in pixels.
        pool: responses are averaged over so many parts of the image in each direction.
        response: `signed`; or `absolute`: blind to which of two neighbours is the brighter,
            for clients of whom some see negatives, at half as many features.
    """

    filters: Positive = 100
    size: Positive = 6
    pool: Positive = 3
    response: Response = "signed"

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:
        """Return the filters, drawn."""
        remedy = "lower its option size, or choose a feature map that takes vectors."
        check_image(f"The feature map {self.name}", input_shape, self.size, remedy)
        return FilterBank(
            unit_filters(self.draw(input_shape[0], streams)), self.pool, self.response
        )

    def draw(self, channels: int, streams: Streams) -> Drawn:
        """Return the filters, of any mean and norm."""
        raise NotImplementedError


@component("features", "gabor", default=True)
class Gabor(FilterMap):
    """filters * 2 * pool**2 features of random Gabor filters of size x size pixels.

    Direction, wavelength, phase, width and length of every filter are drawn, and a weight
    for each colour channel; of several channels a filter may so compare colours.

    References:
        Daugman, Uncertainty relation for resolution in space, spatial frequency, and
        orientation optimized by two-dimensional visual cortical filters, 1985.
        Tramer and Boneh, Differentially Private Learning Needs Better Features, 2021:
        features without data under a linear model.
    """

    def draw(self, channels: int, streams: Streams) -> Drawn:
        """Return waves under a bell, each in its own direction."""
        generator = streams.at("gabor").generator()

        def uniform(low: float, high: float) -> np.ndarray:
            return generator.uniform(low, high, (self.filters, 1, 1))

        y, x = np.mgrid[: self.size, : self.size] - (self.size - 1) / 2
        direction, phase = uniform(0.0, math.pi), uniform(0.0, 2 * math.pi)
        wavelength = 2 ** uniform(math.log2(3), math.log2(2 * self.size))
        width = self.size * uniform(1 / 6, 1 / 2)
        length = width * uniform(1.0, 2.0)
        along = x * np.cos(direction) + y * np.sin(direction)
        across = y * np.cos(direction) - x * np.sin(direction)
        waves = np.cos(2 * math.pi * along / wavelength + phase)
        waves = waves * np.exp(-((along / width) ** 2 + (across / length) ** 2) / 2)
        return generator.standard_normal((self.filters, channels, 1, 1)) * waves[:, None]


NEIGHBOURS, CHANNELS, FLOOR = 0.9, 0.9, 0.1


@component("features", "random-patches")
class RandomPatches(FilterMap):
    """filters * 2 * pool**2 features of random whitened patches of size x size pixels.

    Coates and Ng take patches of the training images and whiten them by these images'
    covariance. Clients' patches would be their data, so patches are drawn instead: normal,
    with the covariance that pixels of photographs have anywhere (0.9 between neighbours,
    less by the same factor per pixel of distance, and 0.9 between channels), and whitened
    by that.

    References:
        Coates, Ng and Lee, An Analysis of Single-Layer Networks in Unsupervised Feature
        Learning, 2011; Coates and Ng, The Importance of Encoding Versus Training with
        Sparse Coding and Vector Quantization, 2011 (random patches).
    """

    def draw(self, channels: int, streams: Streams) -> Drawn:
        """Return the patches, whitened."""
        covariance = _covariance(channels, self.size)
        generator = streams.at("random-patches").generator()
        patches = generator.standard_normal((self.filters, len(covariance)))
        patches = patches @ np.linalg.cholesky(covariance).T
        # The patch and every piece of an image are whitened alike: twice half a whitening.
        whitened = np.linalg.solve(covariance + FLOOR * np.eye(len(covariance)), patches.T)
        return whitened.T.reshape(self.filters, channels, self.size, self.size)


def _covariance(channels: int, size: int) -> np.ndarray:
    """Return the covariance of photographs' pixels, (channel, row, column) in order."""
    y, x = (axis.reshape(-1) for axis in np.mgrid[:size, :size])
    distances = np.hypot(y[:, None] - y, x[:, None] - x)
    between = np.full((channels, channels), CHANNELS) + (1 - CHANNELS) * np.eye(channels)
    return np.kron(between, NEIGHBOURS**distances)


@component("features", "none")
class AsTheyAre(FeatureMap):
    """The numbers of every example, in one row: nothing is drawn, nothing normalised."""

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:  # noqa: ARG002
        """Return the flattening."""
        return nn.Flatten()


class FeatureFunction(FeatureMap, OwnFunction):
    """A user's function that makes a module, such as a frozen backbone."""

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:
        """Return the module that the function makes."""

        def make() -> object:
            signature = inspect.signature(self.call)
            parameters = signature.parameters.values()
            needed = [p for p in parameters if p.default is p.empty and p.kind not in REST]
            takes_shape = needed or "input_shape" in signature.parameters
            return self.call(input_shape) if takes_shape else self.call()

        with streams.lent_to_torch():
            return made_module(f"feature map {self.name}", make, REMEDY)
