"""From a few shadows to the target: one more draw, of the same size or of another.

References:
    Smyth, Linear Models and Empirical Bayes Methods, 2004 (moderated variances).
    arXiv 2402.06674: the log of the advantage is linear in the log of the number of
    examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.membership.estimates import RiskEstimate, known_aucs

__all__ = ["moderated", "power_law", "predicted"]

PRIOR_WEIGHT = 4
"""Degrees of freedom that the sampling error counts for beside the shadows' spread."""


def moderated(values: Sequence[float], sampling_error: float) -> float:
    """Return the standard deviation of one draw, out of a few draws.

    s^2 = [d sigma^2 + sum_k (x_k - mean x)^2] / (d + K - 1), and at least sigma^2

    Three draws alone have two degrees of freedom, and are close together by chance once
    in a while; the sampling error sigma is what must be there even between equal models.
    """
    x = np.asarray(values)
    squares = PRIOR_WEIGHT * sampling_error**2 + np.sum((x - x.mean()) ** 2)
    pooled = squares / (PRIOR_WEIGHT + len(x) - 1)
    return float(np.sqrt(max(pooled, sampling_error**2)))


def predicted(shadows: Sequence[RiskEstimate]) -> RiskEstimate:
    """Return what the shadows say of a target of their size.

    SE = s sqrt(1 + 1 / K): the target is one more draw, and the mean is not certain.
    """
    return _averaged(shadows, np.sqrt(1 + 1 / len(shadows)))


def _averaged(shadows: Sequence[RiskEstimate], factor: float) -> RiskEstimate:
    risks = [figure.risk for figure in shadows]
    sampling = float(np.mean([figure.standard_error for figure in shadows]))
    return RiskEstimate(
        risk=float(np.mean(risks)),
        standard_error=float(moderated(risks, sampling) * factor),
        auc=float(np.mean(known_aucs(shadows))),
        members=shadows[0].members,
        non_members=shadows[0].non_members,
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """log advantage = a + b log n, with the covariance of (b, a)."""

    slope: float
    intercept: float
    covariance: np.ndarray

    def at(self, log_n: float) -> tuple[float, float]:
        """Return the value there and its standard error."""
        x = np.array([log_n, 1.0])
        value = self.slope * log_n + self.intercept
        return value, float(np.sqrt(x @ self.covariance @ x))


def power_law(by_size: Sequence[Sequence[RiskEstimate]], members: int) -> RiskEstimate:
    """Extrapolate from shadows of several sizes to a cluster of `members` examples.

    log(2 risk - 1) = a + b log n, by least squares, b <= 0: more data never expose more.
    SE^2 = (SE of the line, by the delta method)^2 + s^2 of the largest shadows

    An advantage below its own standard error counts as that: its logarithm says nothing.
    """
    means = [_averaged(group, 1 / np.sqrt(len(group))) for group in by_size]
    errors = np.array([2 * figure.standard_error for figure in means])
    advantages = np.maximum([2 * figure.risk - 1 for figure in means], errors)
    line = _fitted(
        np.log([figure.members for figure in means]),
        np.log(advantages),
        errors / advantages,
    )
    log_advantage, log_error = line.at(np.log(members))
    advantage = min(1.0, float(np.exp(log_advantage)))
    largest = max(by_size, key=lambda group: group[0].members)
    draw = _averaged(largest, 1.0)
    return RiskEstimate(
        risk=0.5 + advantage / 2,
        standard_error=float(np.hypot(advantage * log_error / 2, draw.standard_error)),
        auc=draw.auc,
        members=draw.members,
        non_members=draw.non_members,
    )


def _fitted(x: np.ndarray, y: np.ndarray, errors: np.ndarray) -> _Line:
    (slope, intercept), covariance = np.polyfit(x, y, 1, w=1 / errors, cov="unscaled")
    if slope <= 0:
        return _Line(float(slope), float(intercept), covariance)
    weights = errors**-2
    level = float(weights @ y / weights.sum())
    return _Line(0.0, level, np.diag([0.0, 1 / weights.sum()]))
