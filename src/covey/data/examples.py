"""Labelled examples as tensors, clients with their own, and how groups' images differ."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from covey.base.arguments import in_range
from covey.base.built_ins import component
from covey.base.components import Component, Count
from covey.base.errors import ConfigError, DataError
from covey.base.names import ClientName, Handle

MASKED = -100
"""The label of a token that does not count: padding. It is torch's own `ignore_index`."""


FLOOR = 1e-5
"""The least standard deviation, in units of 1 plus the mean's size, that is no rounding."""

CHUNK = 1_000
"""Images turned into floats at a time: bounds the memory, not the result."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Examples:
    """Inputs with their labels: images stay uint8, features are float32, ids are int64.

    Images are (examples, channels, height, width) in [0, 255]. Labels are class numbers,
    or several 0 or 1 per example (examples, labels), or float32 numbers, or a class number
    per token (examples, tokens), with `MASKED` where there is padding.

    Attributes:
        layout: how several inputs of a model lie in `inputs`, as columns of float64; None:
            there is one.
        columns: what the numbers of an example are called, where they come from a table; (): they
            have no names.
    """

    inputs: Shaped[Tensor, "examples ..."]
    labels: Shaped[Tensor, "examples *label"]
    layout: "Layout | None" = None
    columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.labels.shape[0]  # `len` of a tensor takes as long as an operation

    def __repr__(self) -> str:
        return f"Examples({tuple(self.inputs.shape)}, {self.inputs.dtype})"

    def take(self, indices: Int[Tensor, " chosen"]) -> "Examples":
        """Return the examples at these positions, in this order."""
        inputs, labels = self.inputs.index_select(0, indices), self.labels.index_select(0, indices)
        return Examples(inputs, labels, self.layout, self.columns)

    def first(self, count: int) -> "Examples":
        """Return the first `count` examples.

        Raises:
            ConfigError: a count below 0.
        """
        count = in_range("count", count, Count)
        return replace(self, inputs=self.inputs[:count], labels=self.labels[:count])

    @classmethod
    def joined(cls, sets: "Sequence[Examples]") -> "Examples":
        """Return the examples of all sets, one set after the other."""
        inputs, labels = (
            [examples.inputs for examples in sets],
            [examples.labels for examples in sets],
        )
        return cls(torch.cat(inputs), torch.cat(labels), sets[0].layout, sets[0].columns)


class TrainTest(NamedTuple):
    """One client's own examples.

    Attributes:
        train: what it trains on, or all that it has where `test` is None.
        test: what it holds out: it never trains on them.
    """

    train: Examples
    test: Examples | None = None


def to_floats(inputs: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """Return what a model sees: images scaled to [0, 1], all else as it is.

    Whole numbers of 64 bits stay whole: they are ids, for an embedding.
    """
    return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs


def normalised(inputs: Shaped[Tensor, "examples *shape"]) -> Float[Tensor, "examples *shape"]:
    """Return (x - mean) / standard deviation, over all numbers of each example, float32.

    No other example has a part in it. An example whose numbers are all the same, up to
    rounding, becomes zeros: so normalising twice is normalising once.
    """
    axes = tuple(range(1, inputs.dim()))
    floats = to_floats(inputs).float()
    # Sums in float64, rounded to float32, hardly differ from machine to machine.
    exact = floats.double()
    mean = exact.mean(dim=axes, keepdim=True)
    deviation = (exact - mean).square().mean(dim=axes, keepdim=True).sqrt()
    constant = deviation <= FLOOR * (1 + mean.abs())
    return ((floats - mean.float()) / deviation.float()).masked_fill(constant, 0.0)


def standardised(
    inputs: Float[Tensor, "examples *shape"], by: Float[Tensor, "members *shape"]
) -> Float[Tensor, "examples *shape"]:
    """Return (x - mean) / standard deviation of every column over the rows of `by`, float32.

    A column that is the same in all of them, up to rounding, becomes zeros.
    """
    exact = by.double()
    mean = exact.mean(dim=0)
    deviation = (exact - mean).square().mean(dim=0).sqrt()
    constant = deviation <= FLOOR * (1 + mean.abs())
    return ((inputs.double() - mean) / deviation).float().masked_fill(constant, 0.0)


class Input(NamedTuple):
    """One of several inputs of a model.

    Attributes:
        name: the keyword by which `forward` takes it; "": it is taken by position.
        shape: of one example.
        dtype: which it has again when the model is called.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Layout:
    """How several inputs of a model lie in one tensor, and the hook that calls it with them.

    Between the data's door and the model's call examples have one tensor of inputs, which
    is dealt, hashed, moved and drawn from alike, whatever lies in it. float64 holds every
    float32 exactly, and every whole number up to 2^53.

    Attributes:
        inputs: in the order of their columns.
    """

    inputs: tuple[Input, ...]

    def __str__(self) -> str:
        """Return what each input is, in words."""
        return ", ".join(
            f"{tensor.name or place} {tensor.shape} {tensor.dtype}"
            for place, tensor in enumerate(self.inputs)
        )

    def packed(self, inputs: Sequence[Tensor]) -> Float64[Tensor, "examples columns"]:
        """Return the inputs of examples side by side."""
        rows = [
            tensor.double().reshape(len(tensor), math.prod(tensor.shape[1:])) for tensor in inputs
        ]
        return torch.cat(rows, dim=1)

    def unpacked(self, columns: Float64[Tensor, "batch columns"]) -> list[Tensor]:
        """Return the inputs again, as a model sees them: images scaled to [0, 1]."""
        parts = columns.split([math.prod(spec.shape) for spec in self.inputs], dim=1)
        return [
            to_floats(part.reshape(len(columns), *spec.shape).to(spec.dtype))
            for part, spec in zip(parts, self.inputs, strict=True)
        ]

    def __call__(
        self, _: nn.Module, args: tuple[Tensor], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        """Return what `forward` is called with: a module's pre-hook.

        A hook and no module around the user's own: names of parameters stay as they are.
        """
        (columns,) = args
        inputs, names = self.unpacked(columns), [spec.name for spec in self.inputs]
        if not names[0]:
            return tuple(inputs), {**kwargs}
        return (), {**kwargs, **dict(zip(names, inputs, strict=True))}


def hashes(*columns: Shaped[Tensor, "examples ..."]) -> list[bytes]:
    """Return a hash of each example's values in these columns, bit for bit."""
    rows = zip(*(column.numpy() for column in columns), strict=True)
    return [blake2b(b"".join(x.tobytes() for x in row), digest_size=16).digest() for row in rows]


@dataclass(frozen=True, slots=True)
class Preference:
    """What a client accepts.

    Attributes:
        risk_weight: beta in [0, 1], the share of the risk in the client's cost.
        risk_threshold: tau, the highest MIA accuracy (TPR + TNR) / 2 it accepts.
        epsilon_limit: its own budget; None: it has none.
    """

    risk_weight: float
    risk_threshold: float
    epsilon_limit: float | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Client:
    """The owner of one private data set.

    Attributes:
        group: index of the data distribution, known in simulations only.
        train: the members: what the client trains on.
        holdout: reserved before training and never trained on.
    """

    name: ClientName
    handle: Handle
    group: int | None
    train: Examples
    holdout: Examples
    preference: Preference

    def __repr__(self) -> str:
        return f"Client({self.handle})"


@dataclass(frozen=True, slots=True, eq=False)
class PublishedData:
    """A data set as its publisher made it.

    Attributes:
        name: what messages call it.
        test: the publisher's test file; None where there is only one file.
        num_classes: or, where an image has several labels, how many.
        notes: what a reader of results must know: parts that were not there.
        writers: a number for the writer of each training image; None if unknown.
    """

    name: str
    train: Examples
    test: Examples | None
    num_classes: int
    notes: tuple[str, ...] = ()
    writers: Int[Tensor, " images"] | None = None

    @property
    def classes(self) -> Int[Tensor, " images"]:
        """Each image's class: of several labels, the one nearest to half and half."""
        labels = self.train.labels
        if labels.ndim == 1:
            return labels
        return labels[:, (labels.float().mean(dim=0) - 0.5).abs().argmin()]


Images = Shaped[Tensor, "images ..."]
Amounts = Float[Tensor, " images"]
Pixels = Float[Tensor, "images channels height width"]


class Shift(Component):
    """A transform of images by an amount, of which each group has a range of its own.

    Write `transform`; what it needs to know beside the amount are fields:

        class Contrast(covey.Shift):
            pivot: float = 128.0

            def transform(self, pixels, amounts, generator):
                factors = amounts.view(-1, 1, 1, 1)
                return self.pivot + factors * (pixels - self.pivot)
    """

    changes_nothing: ClassVar[bool] = False
    """Whether groups do not differ."""

    def transform(self, pixels: Pixels, amounts: Amounts, generator: np.random.Generator) -> Pixels:
        """Return up to 1,000 images, of pixels from 0 to 255, each by its own amount.

        What comes out is rounded and clipped to 0 to 255. All that is random must come
        from `generator`.
        """
        raise NotImplementedError

    def apply(self, images: Images, amounts: Amounts, generator: np.random.Generator) -> Images:
        """Return the images, each transformed by its own amount.

        Raises:
            DataError: they are no images.
        """
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise DataError(
                f"population.shift needs uint8 images (images, channels, height, width), found "
                f"{images.dtype} of shape {tuple(images.shape)}: set it to 'none'."
            )
        shifted = torch.empty_like(images, memory_format=torch.contiguous_format)
        for start in range(0, len(images), CHUNK):
            chunk = slice(start, start + CHUNK)
            pixels = self.transform(images[chunk].float(), amounts[chunk].float(), generator)
            shifted[chunk] = pixels.round_().clamp_(0, 255).byte()
        return shifted


@component("shift", "none")
class NoShift(Shift):
    """No difference between groups, whatever the amount."""

    changes_nothing: ClassVar[bool] = True

    def apply(self, images: Images, amounts: Amounts, generator: np.random.Generator) -> Images:  # noqa: ARG002
        """Return the images as they are."""
        return images


@dataclass(frozen=True, slots=True)
class ShiftRange:
    """A distribution of image transforms: amounts uniform in [low, high].

    Attributes:
        shift: what is done to an image.
        low: the least amount.
        high: the greatest amount.
        normalise: what is done to every image afterwards; None: nothing.
    """

    shift: Shift
    low: float
    high: float
    normalise: Callable[[Images], Tensor] | None = None

    def __post_init__(self) -> None:
        if not -math.inf < self.low <= self.high < math.inf:
            raise ConfigError(
                f"Amounts of {type(self.shift).__name__} must be finite, [low, high] with low <= "
                f"high, found [{self.low}, {self.high}]: swap or correct them."
            )

    def draw(self, count: int, generator: np.random.Generator) -> Float64[Tensor, "_"]:
        """Return so many independent amounts."""
        return torch.from_numpy(generator.uniform(self.low, self.high, count))

    def shifted(
        self, images: Images, generator: np.random.Generator, *, alike: bool = False
    ) -> Images:
        """Return the images, each by an amount that is drawn; `alike`: all by one."""
        amounts = self.draw(1 if alike else len(images), generator)
        own = images.clone()  # which a user's own may change
        moved = self.shift.apply(own, amounts.expand(len(images)), generator)
        return self.normalise(moved) if self.normalise else moved


@component("shift", "brightness")
class Brightness(Shift):
    """Amounts f are factors of pixels, seen as x in [0, 1]; a negative one inverts.

    clip(f x) for f >= 0; 1 - clip(|f| x) for f < 0.
    """

    def transform(self, pixels: Pixels, amounts: Amounts, generator: np.random.Generator) -> Pixels:  # noqa: ARG002
        """Multiply every pixel by the factor."""
        factors = amounts.view(-1, 1, 1, 1)
        bright = (pixels * factors.abs()).clamp_(0, 255)
        return torch.where(factors < 0, 255 - bright, bright)


@component("shift", "rotation", default=True)
class Rotation(Shift):
    """Amounts are degrees, counter-clockwise."""

    def transform(self, pixels: Pixels, amounts: Amounts, generator: np.random.Generator) -> Pixels:  # noqa: ARG002
        """Rotate about the centre, bilinearly; what enters is black."""
        # An output pixel reads the input where it came from, so the matrix is the inverse
        # rotation; rows count downwards, and each axis is scaled to [-1, 1] by its own size.
        height, width = pixels.shape[-2:]
        angle = amounts.deg2rad()
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        across = torch.stack([cos, -sin * (height / width), zero], dim=1)
        down = torch.stack([sin * (width / height), cos, zero], dim=1)
        inverse = torch.stack([across, down], dim=1)
        grid = functional.affine_grid(inverse, list(pixels.shape), align_corners=False)
        return functional.grid_sample(pixels, grid, align_corners=False)
