"""What epsilon one training refutes, by canaries of which a fair coin each decides who is in it.

Whoever holds what was trained says of some canaries that they are in it, of some that they are
not, and abstains from the rest. Under a guarantee not too many of these guesses are right,
whatever they rest on: more of them refute the guarantee. The bound finds bugs and weak noise;
it proves no guarantee, and a weak attack refutes little.

References:
    Steinke, Nasr, Jagielski, Privacy Auditing with One (1) Training Run, 2023, Theorem 3.1.
    Mahloujifar, Melis, Chaudhuri, Auditing f-Differential Privacy in One Run, 2025,
    Algorithm 3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Shaped
from numpy import ndarray
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom
from torch import Tensor

from covey.base.arguments import Inside, in_range
from covey.base.components import Count, NotNegative, Positive
from covey.base.errors import DataError, blamed
from covey.base.rng import Streams
from covey.dp.accountant import gaussian_epsilon

FEWEST = 8
"""Guesses below which a rule refutes next to nothing: all 8 right, less than epsilon 1."""

WITHIN = 1e-6
"""How far below the largest epsilon that is refuted a search may end."""


@dataclass(frozen=True, slots=True)
class OneRunAudit:
    """What one training refutes, each number with this confidence.

    Attributes:
        epsilon: every smaller one at `delta` is refuted, whatever the mechanism; 0: none is.
        gaussian_epsilon: the same of a mechanism whose trade-off curve is a Gaussian's, as
            many noisy steps have it nearly; of others it says nothing.
        gaussian_mu: the same in the units of Gaussian differential privacy.
        canaries: how many coins were tossed.
        guesses, right: of the rule that refutes `epsilon`; 0 where none does.
        accounted: the epsilon that was promised at `delta`; None: not known.
        accounted_mu: the mu of Gaussian noise that was promised; None: none was.
    """

    epsilon: float
    gaussian_epsilon: float
    gaussian_mu: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    right: int
    accounted: float | None = None
    accounted_mu: float | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing that is accounted for is refuted; nothing promised is not refuted."""
        return not (self._refutes_epsilon or self._refutes_mu)

    @property
    def _refutes_epsilon(self) -> bool:
        return self.accounted is not None and self.epsilon > self.accounted

    @property
    def _refutes_mu(self) -> bool:
        return self.accounted_mu is not None and self.gaussian_mu > self.accounted_mu

    @property
    def verdict(self) -> str:
        """One sentence: what is refuted, and whether that was promised."""
        shown = (
            f"epsilon is at least {self.epsilon:.2f} at delta {self.delta:g} (confidence "
            f"{self.confidence:.0%}, {self.right} of {self.guesses} guesses right, "
            f"{self.canaries} canaries)"
        )
        if self.accounted is None:
            return f"By this one training {shown}"
        if self._refutes_mu and not self._refutes_epsilon:
            return (
                f"REFUTED: Gaussian noise of mu {self.accounted_mu:.2f} is accounted for, but mu "
                f"is at least {self.gaussian_mu:.2f} (confidence {self.confidence:.0%}, "
                f"{self.canaries} canaries)"
            )
        if self.holds:
            return f"Not refuted: {self.accounted:.2f} is accounted for, and {shown}"
        return f"REFUTED: {self.accounted:.2f} is accounted for, but {shown}"


def draw_canaries(count: int, seed: int) -> Bool[ndarray, " canaries"]:
    """Return which canaries to train on: a fair coin for each, as the bound demands.

    Raises:
        ConfigError: a number is out of its range.
    """
    count, seed = in_range("count", count, Positive), in_range("seed", seed, Count)
    return Streams(seed).at("canaries of one run").generator().random(count) < 0.5


def audit_one_run(
    scores: Shaped[ndarray, " scores"],
    included: Shaped[ndarray, " canaries"],
    delta: float,
    accounted: float | None = None,
    confidence: float = 0.95,
    accounted_mu: float | None = None,
) -> OneRunAudit:
    """Return what these scores refute.

    Several rules to guess by are tried: the highest scores are in, or as many of the lowest
    are out as well; all canaries, half, a quarter ... of them. Each is allowed its share of
    the error (Bonferroni). Equal scores are ordered by a draw that does not see the coins.

    Args:
        scores: how much each canary looks as if it were in; minus its loss, for example.
        included: whether it is, by independent fair coins (`draw_canaries`).
        delta: of the guarantee that is to be refuted.
        accounted: the epsilon that was promised at this delta.
        confidence: that no number is too large.
        accounted_mu: the mu of Gaussian noise that was promised, sqrt(T) / z for T releases of
            multiplier z. It finds far weaker faults than epsilon; None: the noise is another.
            With it `accounted` is what it implies, unless that is passed.

    Raises:
        ConfigError: `delta` or `confidence` is not between 0 and 1, or what is accounted for
            is no finite number from 0.
        DataError: the two do not fit, a score is not a number, or these are no fair coins.
    """
    delta, confidence = in_range("delta", delta, Inside), in_range("confidence", confidence, Inside)
    for name, promised in (("accounted", accounted), ("accounted_mu", accounted_mu)):
        if promised is not None:
            in_range(name, promised, NotNegative)
    with blamed(DataError, "The scores, or the coins,", "pass a list or an array of numbers."):
        scores, included = (
            np.asarray(array.detach().cpu() if isinstance(array, Tensor) else array)
            for array in (scores, included)
        )
        scores, included = scores.astype(np.float64), included.astype(bool)
    m = len(included)
    fits = scores.shape == included.shape == (m,) and m >= FEWEST
    if not fits or np.isnan(scores).any():
        raise DataError(
            f"An audit of one run needs a number as score, and a coin, of each of {FEWEST} "
            f"canaries or more, found shapes {scores.shape} and {included.shape}, and "
            f"{int(np.isnan(scores).sum())} scores that are none: score every canary."
        )
    if binom.cdf(min(included.sum(), m - included.sum()), m, 0.5) < 1e-9:
        raise DataError(
            f"Each canary must be included by a fair coin, found {included.sum()} of {m} included: "
            f"draw them with covey.draw_canaries before training."
        )
    shuffled = Streams(0).at("equal scores").generator().permutation(m)
    order = shuffled[np.argsort(-scores[shuffled], kind="stable")]
    rules = list(_rules(included[order]))
    tau = (1 - confidence) / len(rules)
    free, gauss, best = 0.0, 0.0, (0, 0)
    for guesses, right in rules:
        larger = _largest(lambda e, r=guesses, v=right: p_value(m, r, v, e, delta) <= tau, free)
        free, best = (larger, (guesses, right)) if larger > free else (free, best)
        gauss = _largest(lambda mu, r=guesses, v=right: refutes_mu(m, r, v, mu, tau), gauss)
    implied = gaussian_epsilon(gauss, delta)
    if accounted is None and accounted_mu is not None:
        accounted = gaussian_epsilon(accounted_mu, delta)
    promised = accounted, accounted_mu
    return OneRunAudit(free, implied, gauss, delta, confidence, m, *best, *promised)


def _rules(ranked: Bool[ndarray, " canaries"]) -> Iterator[tuple[int, int]]:
    """Yield how many guesses each rule makes, and how many of them are right."""
    m = part = len(ranked)
    while part >= FEWEST:
        half = part // 2
        yield 2 * half, int(ranked[:half].sum() + (~ranked[m - half :]).sum())
        if part < m:
            yield part, int(ranked[:part].sum())
        part //= 2


def p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Return the most that P[at least v of r guesses are right] can be under a guarantee.

    P <= beta + 2 m delta alpha,    W ~ Binomial(r, e^epsilon / (1 + e^epsilon))
    beta = P[W >= v],    alpha = max_{i = 1..v} P[v - i <= W < v] / i
    """
    q = expit(epsilon)
    beta = float(binom.sf(v - 1, r, q))
    if not v:
        return beta
    i = np.arange(1, v + 1)
    alpha = float(((binom.sf(v - i - 1, r, q) - beta) / i).max())
    return min(1.0, beta + 2 * m * delta * alpha)


def refutes_mu(m: int, r: int, v: int, mu: float, tau: float) -> bool:
    """Say whether v of r right guesses refute mu-Gaussian privacy, with error tau.

    The trade-off curve's own recursion: h is the chance of a wrong guess and r of a right
    one, where at least i guesses are right; both are per canary.

        h_v = tau (r - v) / m,    r_v = tau v / m
        h_i = max(h_{i+1}, Phi(Phi^-1(r_{i+1}) - mu))
        r_i = r_{i+1} + i / (r - i) (h_i - h_{i+1})

    They add up to r / m where everything is possible: more is a contradiction.
    """
    wrong, correct = tau * (r - v) / m, tau * v / m
    for i in range(v - 1, -1, -1):
        more = max(wrong, float(ndtr(ndtri(correct) - mu)))
        if more == wrong:  # then neither grows any more
            break
        correct, wrong = min(1.0, correct + i / (r - i) * (more - wrong)), more
    return correct + wrong > r / m


def _largest(refuted: Callable[[float], bool], least: float) -> float:
    """Return the largest number that is refuted, from below; `least` where it is not larger."""
    if not refuted(least):
        return least
    low, high = least, max(1.0, 2 * least)
    while refuted(high):
        low, high = high, 2 * high
    while high - low > WITHIN:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
