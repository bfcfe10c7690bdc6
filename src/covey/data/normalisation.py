"""Every example by itself: its mean is subtracted, and its standard deviation made one."""

from jaxtyping import Float, Shaped
from torch import Tensor

__all__ = ["normalised"]

FLOOR = 1e-5
"""The least standard deviation, in units of 1 plus the mean's size, that is no rounding."""


def normalised(
    inputs: Shaped[Tensor, "examples *shape"],
) -> Float[Tensor, "examples *shape"]:
    """Return (x - mean) / standard deviation, over all numbers of each example.

    No other example has a part in it. An example whose numbers are all the same, up to
    rounding, becomes zeros: so normalising twice is normalising once.
    """
    axes = tuple(range(1, inputs.dim()))
    floats = inputs.float()
    mean = floats.mean(dim=axes, keepdim=True)
    centred = floats - mean
    deviation = centred.square().mean(dim=axes, keepdim=True).sqrt()
    constant = deviation <= FLOOR * (1 + mean.abs())
    return (centred / deviation).masked_fill(constant, 0.0)
