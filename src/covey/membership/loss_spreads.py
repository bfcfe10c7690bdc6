"""How much a record's loss moved while a model learnt: the more, the more it is exposed.

A record that is easy from the start is learnt from others like it. One whose loss was high
and fell was learnt by heart, and is missed by a model without it: reference models would
say so, at the price of training each of them. The losses cost nothing. `loss_drop` is
covey's own; it is best where the newest loss is asked of the final model.

References:
    Pollock, Shilov, Dodd, de Montjoye, Free Record-Level Privacy Risk Evaluation Through
    Artifact-Based Methods, 2024 (arXiv:2411.05743): LT-IQR.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

__all__ = ["highest", "loss_drop", "loss_spread", "precision_at", "top_share"]

QUARTILES = (0.25, 0.75)


def loss_spread(
    losses: Float[ndarray, "records looks"],
    quantiles: tuple[float, float] = QUARTILES,
) -> Float[ndarray, " records"]:
    """Return q_high - q_low of each record's losses, in nats; NaN: it was never seen.

    A look at which a record was not seen is NaN, and does not count.
    """
    low, high = _quantiles(losses, quantiles)
    return high - low


def loss_drop(
    losses: Float[ndarray, "records looks"], last: Float[ndarray, " records"]
) -> Float[ndarray, " records"]:
    """Return q_75 of each record's losses less its newest loss, in nats.

    How far the loss came down from where it was a quarter of the time: high for a record
    that was hard and is known now, where the spread alone is also high for one whose loss
    still moves. NaN: it was never seen, as in `loss_spread`.
    """
    (high,) = _quantiles(losses, QUARTILES[1:])
    return high - last


def _quantiles(
    losses: Float[ndarray, "records looks"], quantiles: Sequence[float]
) -> Float[ndarray, "quantiles records"]:
    found = np.full((len(quantiles), len(losses)), np.nan)
    seen = np.isfinite(losses).any(axis=1)
    if seen.any():
        finite = np.where(np.isfinite(losses[seen]), losses[seen], np.nan)
        found[:, seen] = np.nanquantile(finite, quantiles, axis=1)
    return found


def top_share(
    scores: Float[ndarray, " records"], share: float
) -> Bool[ndarray, " records"]:
    """Return the records with the highest scores: this share of them, one at the least."""
    return highest(scores, max(1, round(share * len(scores))))


def highest(
    scores: Float[ndarray, " records"], count: int
) -> Bool[ndarray, " records"]:
    """Return so many records with the highest scores, or all if there are fewer.

    Records without a score (NaN) are the last; of equal ones the first are taken.
    """
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[order[:count]] = True
    return chosen


def precision_at(
    scores: Float[ndarray, " records"],
    vulnerable: Bool[ndarray, " records"],
    share: float,
) -> float:
    """Return how many of the records with the highest scores are vulnerable, as a share.

    Vulnerable are the members that an attack says are members, at a low rate of
    non-members of which it says so too (the paper: LiRA, at 1 in 1000).
    """
    return float(vulnerable[top_share(scores, share)].mean())
