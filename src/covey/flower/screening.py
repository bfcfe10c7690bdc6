"""Rules over the answers of one round: no client may move or weigh far more than most.

Both compare with a median, so that whoever is to move the bound needs a majority.
"""

from collections.abc import Mapping
from statistics import median

from covey.params import norm
from covey.types import Handle, Params

__all__ = [
    "MIN_TO_COMPARE",
    "NORM_FACTOR",
    "NormRule",
    "reduced_weights",
]

NORM_FACTOR = 5.0
"""An update is refused if its L2 norm is above so many times the median of its round, and
a weight is reduced if with it the update moves the mean by so many times the median."""

MIN_TO_COMPARE = 3
"""Answers from which on they are compared."""


class NormRule:
    """Who sends an update that is far longer than the others': |u| > 5 max(m_t, r_t / 2).

    m_t is the median of the norms above 0 in round t, and r_t = max(m_{t-1}, r_{t-1} / 2).
    An update of 0 moves nothing, and does not make a norm for those that do; nor do tiny
    ones in a round in which most of the others are not there.
    """

    def __init__(self) -> None:
        self._usual: dict[str, float] = {}

    def outsized(self, task: str, updates: Mapping[Handle, Params]) -> list[Handle]:
        """Return whose update is too long, in a round of one task."""
        norms = {handle: norm(update) for handle, update in updates.items()}
        moving = [length for length in norms.values() if length > 0]
        if len(moving) < MIN_TO_COMPARE:
            return []
        reference = max(median(moving), self._usual.get(task, 0.0) / 2)
        limit = NORM_FACTOR * reference
        refused = [handle for handle, length in norms.items() if length > limit]
        if len(refused) < len(moving):
            self._usual[task] = reference
        return refused


def reduced_weights(
    weights: Mapping[Handle, float], updates: Mapping[Handle, Params]
) -> dict[Handle, float]:
    """Return who counts for less than it weighs: w_i <- 5 med_k(w_k |u_k|) / |u_i|.

    What a client moves the mean by is its weight times its update's length, so that the
    two are bounded together.
    """
    norms = {handle: norm(update) for handle, update in updates.items()}
    moved = {h: weights[h] * length for h, length in norms.items() if length > 0}
    if len(moved) < MIN_TO_COMPARE:
        return {}
    limit = NORM_FACTOR * median(moved.values())
    return {h: limit / norms[h] for h, most in moved.items() if most > limit}
