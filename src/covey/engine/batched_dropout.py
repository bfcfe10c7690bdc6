"""Dropout of clients that train as one tensor: nothing is drawn inside `vmap`.

A forward pass of one client tells which masks a batch takes. They are drawn before every
step, each client's out of its own stream and in the order in which it would draw them by
itself, and handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from covey.engine.dropout import MaskedDropout

__all__ = ["MaskShape", "drawn_masks", "handing_out", "mask_shapes"]


@dataclass(frozen=True, slots=True)
class MaskShape:
    """One mask of a forward pass, of one client.

    Attributes:
        shape: the first axis is that of the examples in the batch, as a rule.
        kept: the chance of a one, in [0, 1].
    """

    shape: tuple[int, ...]
    kept: float


def mask_shapes(forward: Callable[[], object]) -> list[MaskShape]:
    """Return the masks that a forward pass takes, in order; nothing is drawn for it."""
    found: list[MaskShape] = []

    def listed(inputs: Tensor, shape: tuple[int, ...], kept: float) -> Tensor:
        found.append(MaskShape(shape, kept))
        return inputs.new_ones(shape)

    with MaskedDropout(listed):
        forward()
    return found


def drawn_masks(
    shapes: Sequence[MaskShape],
    generators: Sequence[torch.Generator],
    *,
    pinned: bool = False,
) -> list[Bool[Tensor, "clients ..."]]:
    """Return the masks of one step, one client per generator.

    Coins are the same in every type; as bytes they are a quarter of what floats take.
    """
    masks: list[Tensor] = []
    for each in shapes:
        size = (len(generators), *each.shape)
        mask = torch.empty(size, dtype=torch.bool, pin_memory=pinned)
        for own, generator in zip(mask, generators, strict=True):
            own.bernoulli_(each.kept, generator=generator)
        masks.append(mask)
    return masks


def handing_out(masks: Sequence[Tensor]) -> MaskedDropout:
    """Return a block, for one forward pass, in which dropout takes these masks in turn."""
    rest = iter(masks)
    return MaskedDropout(lambda _inputs, _shape, _kept: next(rest))
