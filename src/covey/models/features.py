"""Fixed maps from examples to features: Gabor filters, random patches, whitened, or as they are."""

import copy
import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float, Float64, Shaped
from numpy import ndarray
from pydantic import Field
from torch import Tensor, nn

from covey.base.built_ins import component
from covey.base.components import AboveZero, Component, OwnFunction, Part, Positive, Share
from covey.base.errors import ConfigError, ModelError, blamed
from covey.base.own_code import source_hash
from covey.base.rng import Streams
from covey.data.examples import normalised
from covey.models.build import ModelFactory, check_image, made_module, no_such_result, refuse_module


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

        def each(low: float, high: float) -> np.ndarray:
            return generator.uniform(low, high, (self.filters, 1, 1))

        y, x = np.mgrid[: self.size, : self.size] - (self.size - 1) / 2
        direction, phase = each(0.0, math.pi), each(0.0, 2 * math.pi)
        wavelength = 2 ** each(math.log2(3), math.log2(2 * self.size))
        width = self.size * each(1 / 6, 1 / 2)
        length = width * each(1.0, 2.0)
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
    y, x = (each.reshape(-1) for each in np.mgrid[:size, :size])
    distances = np.hypot(y[:, None] - y, x[:, None] - x)
    between = np.full((channels, channels), CHANNELS) + (1 - CHANNELS) * np.eye(channels)
    return np.kron(between, NEIGHBOURS**distances)


@component("features", "none")
class AsTheyAre(FeatureMap):
    """The numbers of every example, in one row: nothing is drawn, nothing normalised."""

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:  # noqa: ARG002
        """Return the flattening."""
        return nn.Flatten()


TINY = 1e-6


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


SLOPE = 1.2
"""Of amplitude against frequency: that of photographs is 1 to 1.5."""

SHARED = 0.6
"""Of the variance of each colour channel, what all have in common."""

LEAST_DIRECTION = 1e-7
"""Of the largest variance, the least that is divided by."""

MIN_IMAGES = 3_000
CHUNK = 500


class Whitened(nn.Module):
    """C^(-p/2) (phi - mean), of the mean and the covariance C on images of pink noise.

    Features of photographs have nearly all their variance in a few directions. Noise of
    one size drowns the others; along these axes it does not. No client's data are in it.

    References:
        Field, Relations between the statistics of natural images and the response
        properties of cortical cells, 1987: the spectrum of photographs.
        Tramer and Boneh, Differentially Private Learning Needs Better Features, 2021.
    """

    def __init__(self, mean: Float[Tensor, " d"], transform: Float[Tensor, "d d"]) -> None:
        super().__init__()
        # Plain attributes: the last digits, which differ by machine, are in no hash.
        self.mean, self.transform = mean, transform

    def forward(self, features: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d"]:
        """Return the features, centred and whitened."""
        return (features - self.mean.to(features)) @ self.transform.to(features)


@dataclass(frozen=True)
class Whitening:
    """How features are whitened: the same again is not computed again.

    Attributes:
        features: what is whitened.
        key: distinguishes it from all others.
        power: p: 0 centres only, at 1 the covariance is the identity.
        input_shape: of one image: channels, height, width.
        streams: draw the images.
    """

    features: nn.Module = field(compare=False)
    key: str
    power: float
    input_shape: tuple[int, ...]
    streams: Streams

    @lru_cache(maxsize=2)  # noqa: B019 - two are kept, and no more
    def axes(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Return the mean and C^(-p/2).

        Raises:
            ModelError: inputs are no images.
        """
        if len(self.input_shape) != 3:
            raise ModelError(
                f"model.whiten needs images (channels, height, width), found inputs "
                f"{self.input_shape}: set it to 0, and whiten by public data of your own."
            )
        generator = self.streams.at("pink noise").generator()
        parts: list[np.ndarray] = []
        count = MIN_IMAGES
        while sum(map(len, parts)) < count:
            images = pink_images(CHUNK, self.input_shape, generator)
            parts.append(self.features(images).double().numpy())
            count = max(MIN_IMAGES, 3 * parts[0].shape[1])
        phi = np.concatenate(parts)
        values, basis = np.linalg.eigh(np.cov(phi.T))
        scale = np.maximum(values, LEAST_DIRECTION * values[-1]) ** (-self.power / 2)
        mean = torch.from_numpy(phi.mean(axis=0)).float()
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


class FrozenFeatures(nn.Module):
    """Features of a batch, one row each; none of its tensors is a parameter or a buffer.

    So a model that has it keeps, sends and averages its other parts alone.

    Attributes:
        name: of the feature map, as settings have it.
        options: of the feature map.
        source: SHA-256 of a user's own source; "" for covey's own.
        tensors: SHA-256 of its tensors: filters or weights; "" if it has none.
        size: how many features there are (d).
    """

    def __init__(
        self, module: nn.Module, name: str, options: Mapping[str, Any], source: str
    ) -> None:
        super().__init__()
        # behind a tuple, so that torch does not see them
        self._steps = (module.eval().requires_grad_(requires_grad=False),)
        self.name, self.options = name, dict(options)
        self.source, self.tensors = source, _tensor_hash(module)
        self.size = 0

    def at_norm(self, norm: float) -> "FrozenFeatures":
        """Return the same features, centred and scaled to this norm for each record."""
        return self._then(OneNorm(norm))

    def whitened(
        self, power: float, input_shape: tuple[int, ...], streams: Streams
    ) -> "FrozenFeatures":
        """Return the same features, whitened by images of noise (`Whitened`)."""
        key = f"{self.name} {self.options} {self.source} {self.tensors}"
        return self._then(
            Whitened(*Whitening(self._steps[0], key, power, input_shape, streams).axes())
        )

    def _then(self, step: nn.Module) -> "FrozenFeatures":
        features = copy.copy(self)
        features._steps = (*self._steps, step)
        return features

    def sized(self, input_shape: tuple[int, ...]) -> "FrozenFeatures":
        """Try it on two examples, and learn its size.

        Raises:
            ModelError: it does not return two rows of floating-point numbers.
        """
        zeros = torch.zeros(2, *input_shape)
        try:
            features = self(zeros)
        except ModelError as error:
            try:
                features = self(zeros.long())  # a map of ids, such as of words
            except ModelError:
                raise error from None
        if features.dim() != 2 or len(features) != 2 or not features.isfinite().all():
            raise ModelError(
                f"The feature map {self.name} must turn two zero examples {input_shape} into two "
                f"rows of finite numbers, found shape {tuple(features.shape)}: flatten its "
                f"outputs, and give constant examples values, too."
            )
        self.size = features.shape[1]
        return self

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """Return the features as float32; nothing is kept for a gradient."""
        subject = f"The feature map {self.name}, on a batch of shape {tuple(inputs.shape)},"
        with torch.no_grad(), blamed(ModelError, subject, "choose one that fits these inputs."):
            features: Any = inputs.clone()  # a user's may write
            for step in self._steps:
                features = step(features)
        if not isinstance(features, Tensor):
            raise no_such_result(f"The feature map {self.name}", "one tensor", features)
        return features.float()

    def _apply(
        self,
        fn: Callable[[Tensor], Tensor],
        recurse: bool = True,  # noqa: FBT001, FBT002 - torch's own
    ) -> "FrozenFeatures":
        """Go along to where the model goes."""
        for step in self._steps:
            step._apply(fn)
        return super()._apply(fn, recurse)


def _tensor_hash(module: nn.Module) -> str:
    """Return SHA-256 over all tensors, persistent or not; "" if there are none."""
    tensors = {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in (*module.named_parameters(), *module.named_buffers())
    }
    if not tensors:
        return ""
    return hashlib.sha256(safetensors.torch.save(tensors)).hexdigest()


REMEDY = "correct it: beside its settings it takes input_shape or nothing."
REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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


def build_features(features: FeatureMap, input_shape: tuple[int, ...], seed: int) -> FrozenFeatures:
    """Return the features that all models of a run share.

    Args:
        features: the feature map.
        input_shape: of one example, without the batch.
        seed: the run's; whatever is drawn depends on nothing else.

    Raises:
        ModelError: it makes no module that maps examples to rows.
    """
    module = features.build(input_shape, Streams(seed).at("features"))
    maker = features.function if isinstance(features, FeatureFunction) else type(features)
    source = source_hash(maker) if features.is_own else ""
    return FrozenFeatures(module, features.name, features.own_settings(), source).sized(input_shape)


class LinearHeadNetwork(nn.Module):
    """scale * head(features(x)); the head starts at zero, and it alone is the state."""

    def __init__(self, features: FrozenFeatures, num_classes: int, scale: float) -> None:
        super().__init__()
        self.features, self.scale = features, scale
        self.head = nn.Linear(features.size, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch k"]:
        """Return logits."""
        return self.scale * self.head(self.features(inputs))


@component("model", "linear-head")
class LinearHead(ModelFactory):
    """Softmax regression over a feature map, which all models of a run share.

    Every model starts at zero, so clusters that start apart (`method.initialisation =
    "random"`) start alike, and choices by loss find one cluster.

    Attributes:
        features: the feature map.
        scale: times the head's scores are the logits; 0.3 suits gradient descent over
            features of images.
        whiten: p in [0, 1], how far the features of images are whitened, by images of
            noise (`Whitened`).
        norm: L2 norm to which each record's features are scaled, less their mean first; 0:
            they stay as they are.
    """

    features: Annotated[FeatureMap, Part("features")] = Gabor()
    scale: AboveZero = 10.0
    whiten: Share = 0.0
    norm: Annotated[float, Field(ge=0, le=16)] = 0.0

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Refuse: features are drawn from the seed of a run."""
        raise ConfigError(
            f"A linear head needs a run's seed for its features, found none: call "
            f"build_for({input_shape}, {num_classes}, seed)."
        )

    def build_for(self, input_shape: tuple[int, ...], num_classes: int, seed: int) -> nn.Module:
        """Return the head over this run's features."""
        features = build_features(self.features, input_shape, seed)
        if self.whiten:
            features = features.whitened(self.whiten, input_shape, Streams(seed).at("features"))
        if self.norm:
            features = features.at_norm(self.norm)
        return LinearHeadNetwork(features, num_classes, self.scale)
