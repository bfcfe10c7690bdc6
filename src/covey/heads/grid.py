"""The grid on which features and exposure weights lie, so that their sums are exact.

A sum of whole numbers below 2^53 has no rounding in float64, whatever its order. So sums
over clients are equal to the last bit in any order, and so are sums from which a client
was taken off again.
"""

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from covey.errors import ModelError

__all__ = [
    "EXACT",
    "FEATURE_STEPS",
    "WEIGHT_STEPS",
    "feature_grid",
    "weight_steps",
]

FEATURE_STEPS = 2**10
"""Steps of the grid in a feature's unit: a feature is a multiple of 2^-10, in +-32."""

WEIGHT_STEPS = 2**8
"""Steps in [0, 1] of how much a client's records enter."""

EXACT = 2.0**53
"""Whole numbers below it are exact in float64, and so are their sums."""

LARGEST = 2**15 - 1
MIN_SPREAD = 16 / FEATURE_STEPS


def feature_grid(features: Float[Tensor, "rows d"]) -> Int16[Tensor, "rows d_and_one"]:
    """Return features in steps of the grid, with a last one that is always 1: the bias.

    Raises:
        ModelError: they are not finite, or too small for the grid.
    """
    if not features.isfinite().all():
        raise ModelError(
            "A feature map must return finite numbers, found others. Correct it, or the "
            "examples."
        )
    largest = float(features.abs().max()) if features.numel() else 1.0
    if largest < MIN_SPREAD:
        raise ModelError(
            f"Features must be of the order of 1, as their sums count steps of "
            f"{1 / FEATURE_STEPS:.4f}, found none above {largest:.2g}. Scale them."
        )
    steps = (features * FEATURE_STEPS).round_().clamp_(-LARGEST, LARGEST)
    bias = torch.full((len(steps), 1), float(FEATURE_STEPS))
    return torch.cat([steps, bias.to(steps)], dim=1).to(torch.int16)


def weight_steps(weight: float) -> int:
    """Return an exposure weight in [0, 1] as steps of its grid, at least one above 0."""
    return max(round(weight * WEIGHT_STEPS), int(weight > 0))
