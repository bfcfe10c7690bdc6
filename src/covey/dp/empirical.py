"""What an epsilon must at least be: a game that is won too often refutes a guarantee.

A mechanism is played many times with a canary and many times without it; who sees only
what is released guesses which it was. No guarantee allows more right guesses than its
epsilon does. The bound finds bugs; it proves no guarantee.

References:
    Jagielski, Ullman, Oprea, Auditing Differentially Private Machine Learning, 2020.
    Nasr et al., Tight Auditing of Differentially Private Machine Learning, 2023.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.special import ndtri

from covey.dp.accountant import gaussian_epsilon
from covey.membership.intervals import clopper_pearson

__all__ = ["RefutedEpsilon", "least_epsilon", "least_success"]

CONFIDENCE = 0.999
"""Of a refutation: it accuses, and whoever audits often would else accuse by chance."""
THRESHOLDS = 60
"""Guessing rules that are tried on the first half of the draws."""

Draws = Float[ndarray, " draws"]


@dataclass(frozen=True, slots=True)
class RefutedEpsilon:
    """Every epsilon below this one is refuted, with 99.9% confidence.

    Attributes:
        epsilon: at the delta that was asked about; 0: nothing is refuted.
        mu: the same in the units of Gaussian differential privacy; None where the
            mechanism is no plain Gaussian one.
        draws: of each of the two cases.
    """

    epsilon: float
    mu: float | None
    draws: int


def least_epsilon(
    with_canary: Draws, without: Draws, delta: float, *, is_gaussian: bool
) -> RefutedEpsilon:
    """Return the largest epsilon that these draws refute, with 99.9% confidence.

    eps >= ln((TPR - delta) / FPR), for any mechanism;
    mu >= Phi^-1(TPR) - Phi^-1(FPR), for one that is Gaussian.

    TPR is taken at the lower and FPR at the upper end of its exact interval. The rule to
    guess by is chosen on the first half of the draws and judged on the second.

    Args:
        with_canary: what was released, as one number per draw that is larger with it.
        without: the same without it.
        delta: of the guarantee that is to be refuted.
        is_gaussian: whether one Gaussian release was drawn, and nothing was sampled.
    """

    def bound(tpr: float, fpr: float) -> float:
        return _mu(tpr, fpr) if is_gaussian else _ratio(tpr, fpr, delta)

    found, draws = max(0.0, _least(with_canary, without, bound)), len(with_canary)
    if is_gaussian:
        return RefutedEpsilon(gaussian_epsilon(found, delta), found, draws)
    return RefutedEpsilon(found, None, draws)


def least_success(with_canary: Draws, without: Draws) -> float:
    """Return what balanced accuracy these draws show at least, with 99.9% confidence."""
    return max(0.5, _least(with_canary, without, lambda tpr, fpr: (1 + tpr - fpr) / 2))


def _least(
    with_canary: Draws, without: Draws, bound: Callable[[float, float], float]
) -> float:
    """Return a bound on the second half of the draws, by the best rule of the first."""
    half = len(with_canary) // 2
    pooled = np.concatenate([with_canary[:half], without[:half]])
    tried = np.quantile(pooled, np.linspace(0.002, 0.998, THRESHOLDS))

    def judged(part: slice, threshold: float) -> float:
        return bound(*_judged(with_canary[part] > threshold, without[part] > threshold))

    best = max(tried, key=lambda threshold: judged(slice(half), threshold))
    return judged(slice(half, None), float(best))


def _judged(
    right: Bool[ndarray, " draws"], wrong: Bool[ndarray, " draws"]
) -> tuple[float, float]:
    """Return the least TPR and the largest FPR that the guesses allow."""
    tpr, _ = clopper_pearson(int(right.sum()), len(right), CONFIDENCE)
    _, fpr = clopper_pearson(int(wrong.sum()), len(wrong), CONFIDENCE)
    return tpr, fpr


def _mu(tpr: float, fpr: float) -> float:
    return float(ndtri(tpr) - ndtri(fpr))


def _ratio(tpr: float, fpr: float, delta: float) -> float:
    return math.log((tpr - delta) / fpr) if tpr > delta else -math.inf
