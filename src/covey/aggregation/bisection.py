"""Many points divided into parts that are small enough to look at all pairs in each."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["divided_in_parts"]

LOOKED_AT = 2048
"""Points of which a direction is found; more would hardly turn it."""
STEPS = 12
"""Of the power iteration: a direction of wide spread is enough."""


def divided_in_parts(
    points: Float[Tensor, "n d"],
    k: int,
    most: int,
    divide: Callable[[Float[Tensor, "m d"]], Iterable[Sequence[int]]],
) -> Iterator[Sequence[int]]:
    """Divide points into sets part by part, with at most so many in a part.

    While a part has more, it is halved across the direction of its widest spread (the first
    principal component, by power iteration). One half has a multiple of k, so that there
    are floor(n/k) sets in all, as without parts. No set spans two parts: that is what sets
    lose in tightness.

    Args:
        points: seen from anywhere.
        k: the least points of a set.
        most: points of a part, but no fewer than 2k.
        divide: how a part is divided.
    """
    parts = [torch.arange(len(points))]
    while parts:
        part = parts.pop()
        if len(part) > max(most, 2 * k):
            parts += _halves(points, part, k)
        else:
            own = part.tolist()
            yield from ([own[i] for i in each] for each in divide(points[part]))


def _halves(
    points: Float[Tensor, "n d"], part: Int[Tensor, " m"], k: int
) -> tuple[Int[Tensor, " low"], Int[Tensor, " high"]]:
    direction = _widest(points[part[:: -(-len(part) // LOOKED_AT)]])
    along = torch.cat([points[some] @ direction for some in part.split(LOOKED_AT)])
    order = part[along.argsort(stable=True)]
    cut = len(part) // (2 * k) * k
    return order[:cut].sort().values, order[cut:].sort().values


def _widest(points: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    centred = points - points.mean(dim=0)
    direction = centred[centred.square().sum(dim=1).argmax()]
    for _ in range(STEPS):
        direction = torch.nn.functional.normalize(
            centred.T @ (centred @ direction), dim=0
        )
    return direction
