"""Blocks along a diagonal: by them nearly half of a symmetric product is left out."""

from collections.abc import Iterator
from itertools import pairwise

__all__ = ["blocks"]

BLOCKS = 8
"""More of them leave more out, in smaller products that each take longer."""


def blocks(d: int) -> Iterator[tuple[int, int]]:
    """Yield where each block of d rows or columns starts and ends; none is empty."""
    edges = [d * b // BLOCKS for b in range(BLOCKS + 1)]
    return ((start, end) for start, end in pairwise(edges) if end > start)
