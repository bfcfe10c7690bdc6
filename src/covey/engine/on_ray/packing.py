"""Tensors as arrays of bytes: Ray keeps these once per node, and copies them for nobody."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from covey.data.examples import Examples
from covey.engine.protocol import Scored
from covey.types import Params

__all__ = [
    "Packed",
    "PackedExamples",
    "PackedParams",
    "PackedScored",
    "pack",
    "pack_examples",
    "pack_params",
    "pack_scored",
    "unpack",
    "unpack_examples",
    "unpack_params",
    "unpack_scored",
]


class Packed(NamedTuple):
    """A tensor of any type that torch has; NumPy does not have them all."""

    data: UInt8[np.ndarray, " bytes"]
    dtype: torch.dtype
    shape: tuple[int, ...]


class PackedExamples(NamedTuple):
    """`Examples`."""

    inputs: Packed
    labels: Packed


class PackedScored(NamedTuple):
    """`Scored`."""

    losses: Packed
    predictions: Packed
    correct: Packed | None
    log_probs: Packed | None


PackedParams = Mapping[str, Packed]


def pack(tensor: Shaped[Tensor, "..."]) -> Packed:
    """Return the tensor's bytes, in its own memory where it lies in one piece."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return Packed(flat.view(torch.uint8).numpy(), tensor.dtype, tuple(tensor.shape))


def unpack(packed: Packed, *, copy: bool = True) -> Shaped[Tensor, "..."]:
    """Return the tensor. What came from Ray may be written to in a copy only."""
    if packed.data.size == 0:  # torch views no array that is empty
        return torch.empty(packed.shape, dtype=packed.dtype)
    data = packed.data.copy() if copy else packed.data
    return torch.from_numpy(data).view(packed.dtype).reshape(packed.shape)


def pack_params(params: Params) -> PackedParams:
    """Return a model to be moved."""
    return {name: pack(value) for name, value in params.items()}


def unpack_params(packed: PackedParams, *, copy: bool = True) -> Params:
    """Return the model, its tensors in their order."""
    return {name: unpack(value, copy=copy) for name, value in packed.items()}


def pack_examples(examples: Examples) -> PackedExamples:
    """Return examples to be moved."""
    return PackedExamples(pack(examples.inputs), pack(examples.labels))


def unpack_examples(packed: PackedExamples) -> Examples:
    """Return examples that lie where Ray keeps them; nobody may write to them."""
    inputs, labels = (unpack(each, copy=False) for each in packed)
    return Examples(inputs, labels)


def pack_scored(scored: Scored) -> PackedScored:
    """Return scores to be moved."""
    return PackedScored(
        losses=pack(scored.losses),
        predictions=pack(scored.predictions),
        correct=None if scored.correct is None else pack(scored.correct),
        log_probs=None if scored.log_probs is None else pack(scored.log_probs),
    )


def unpack_scored(packed: PackedScored) -> Scored:
    """Return the scores."""
    return Scored(
        losses=unpack(packed.losses),
        predictions=unpack(packed.predictions),
        correct=None if packed.correct is None else unpack(packed.correct),
        log_probs=None if packed.log_probs is None else unpack(packed.log_probs),
    )
