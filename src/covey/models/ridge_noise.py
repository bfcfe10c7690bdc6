"""Ridge heads under objective perturbation, and how well an attacker sees who is in one.

    theta = (A + lambda I)^-1 (B + xi)
    A = sum_i w_i phi_i phi_i^T,    B = sum_i w_i phi_i t_i^T,    t_i = onehot - 1 / K

phi_i are features of norm 1 at most, and xi is N(0, sigma^2) in the K - 1 directions in
which targets add up to 0, sigma = z R. An attacker that has every record but one, all settings and
theta, looks at y = (A' + lambda I) theta - B', of the others' A' and B':

    without the record:  y = xi
    with it:             y = xi + w phi r^T,    r = t - theta^T phi, in which xi is again

Two Gaussians, so what the best attacker achieves can be computed. It achieves most where
the record's residual without it is R and either no other shares its direction, which then
gives away the larger curvature too, or so many do that r does not move:

    alone:   N(s w R, s^2 sigma^2 I) against N(0, sigma^2 I) in K - 1 directions,
             s = lambda / (lambda + w)
    shared:  N(w R, sigma^2) against N(0, sigma^2)

That nothing in between is worse was searched for, and is not proved.

References:
    Chaudhuri, Monteleoni, Sarwate, Differentially Private Empirical Risk Minimization,
    2011. Kifer, Smith, Thakurta, Private Convex Empirical Risk Minimization, 2012.
    Redberg, Wang, Privately Publishable Per-instance Privacy, 2021.
    Redberg, Koskela, Wang, Improving the Privacy and Practicality of Objective
    Perturbation for Differentially Private Linear Learners, 2023.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float64
from numpy import ndarray
from torch import Tensor

from covey.models.ridge_state import targets_of
from covey.models.ridge_sums import (
    FEATURE_STEPS,
    MAX_NORM,
    WEIGHT_STEPS,
    Rows,
    Sums,
    bounded_records,
)

GRID = 2.0**20
"""Steps of a released head in 1: rounding a sum with real noise reveals nothing more."""

LARGEST = 256.0
"""An epsilon above which its size does not matter."""

ROUNDED_UP = 1e-6
"""By which an epsilon is raised: to how much it is known."""

POINTS = 2**12
"""Of a Sobol sequence: they give a success to about .0005."""


@dataclass(frozen=True, slots=True)
class HeadNoise:
    """Noise on B, by which no record, and no client, can be read off a head at will.

    Attributes:
        clip: R: the largest residual |t - theta^T phi| of a record in a head without it.
        multiplier: z = sigma / R.
        regularisation: lambda.
        classes: K.
    """

    clip: float
    multiplier: float
    regularisation: float
    classes: int

    def bounded(self, rows: Rows, classes: int) -> Rows:  # noqa: ARG002 - as SumNoise
        """Return a client's records as they enter the sums."""
        return bounded_records(rows)

    def head(
        self, sums: Sums, drawn: Float64[ndarray, "d classes"]
    ) -> Float64[Tensor, "d classes"]:
        """Return theta of features as they are, from sums and d x K standard normals."""
        lower, targets = self._system(sums)
        xi = self.clip * self.multiplier * (drawn - drawn.mean(axis=1, keepdims=True))
        theta = torch.cholesky_solve(targets + torch.from_numpy(xi), lower) / MAX_NORM
        return (theta * GRID).round() / GRID

    def hidden(self, sums: Sums, clients: Sequence[Rows]) -> list["Hidden"]:
        """Return how each client's records hide in the head of these sums.

        clients: all are in the sums, at the weight with which they entered, and bounded.
        """
        lower, targets = self._system(sums)
        theta = torch.cholesky_solve(targets, lower)

        def of(rows: Rows) -> Hidden:
            phi = rows.features.double() / (FEATURE_STEPS * MAX_NORM)
            weight = rows.weight / WEIGHT_STEPS
            solved, scores = torch.cholesky_solve(phi.T, lower).T, phi @ theta
            squares, kernel = phi.square().sum(dim=1), (phi * solved).sum(dim=1)
            rest = 1 - weight * kernel
            errors = (targets_of(rows.labels, scores) - scores).norm(dim=1) / rest
            return Hidden(
                self,
                weights=(weight * squares).numpy(),
                residuals=(errors / squares.sqrt()).numpy(),
                kernels=(kernel / rest / squares).numpy(),
                lengths=(solved.norm(dim=1) / rest / squares.sqrt()).numpy(),
            )

        return [of(rows) for rows in clients]

    def success(self, weight: float, releases: int = 1) -> float:
        """Return how often anybody is right at most about a record of this weight.

        Balanced accuracy: (1 + TV) / 2. Of several heads: all of them together.
        """
        return 0.5 + 0.5 * self.delta(0.0, weight, releases)

    def delta(self, epsilon: float, weight: float, releases: int = 1) -> float:
        """Return delta of (epsilon, delta): a record of this weight is there or is not.

        Of a client whose records have this weight together: it is.
        """
        if weight <= 0:
            return 0.0
        from scipy.special import ndtr

        mu = math.sqrt(releases) * weight / self.multiplier
        shared = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        return max(0.0, float(shared), *self._alone(epsilon, weight, releases))

    def epsilon(self, delta: float, weight: float, releases: int = 1) -> float:
        """Return epsilon of (epsilon, delta)."""
        if math.isinf(weight):
            return math.inf
        return _least(lambda e: self.delta(e, weight, releases), delta)

    def epsilon_replaced(self, delta: float, weight: float, releases: int = 1) -> float:
        """Return epsilon where one is replaced by another: taken off, and one added.

        delta(epsilon) <= (1 + exp(epsilon / 2)) delta'(epsilon / 2)
        """
        return _least(lambda e: (1 + math.exp(e / 2)) * self.delta(e / 2, weight, releases), delta)

    @cache  # noqa: B019 - few settings, and frozen
    def weight_for(self, accepted: float, releases: int = 1) -> int:
        """Return the largest weight, in steps, at which no attacker succeeds more often."""

        def success(steps: int) -> float:
            return self.success(steps / WEIGHT_STEPS, releases)

        return bisect_right(range(1, WEIGHT_STEPS + 1), accepted, key=success)

    def _alone(self, epsilon: float, weight: float, releases: int) -> tuple[float, float]:
        """Return delta of a client whose direction no other shares: come, and gone.

        log p/q(y) = C - a/2 |y - c|^2 is above epsilon in a ball, of which noncentral
        chi-squared distributions know the probabilities. Equal releases are one release
        in as many times the directions.
        """
        from scipy.stats import ncx2

        s = self.regularisation / (self.regularisation + weight)
        k = releases * (self.classes - 1)
        square = releases * (s * weight / self.multiplier) ** 2
        rest = 1 - s**2
        most = square / (2 * rest) - k * math.log(s)  # C
        radius, centre = 2 * s**2 / rest, square / rest**2  # 2 / a, |c|^2

        def outside(limit: float) -> float:
            """Return the squared radius outside of which log p/q is below the limit."""
            return max(0.0, radius * (most - limit))

        ball, shell = outside(epsilon), outside(-epsilon)
        inner, outer = (k, centre * s**2), (k, centre)  # of p at scale s, of q
        come = ncx2.cdf(ball / s**2, *inner) - math.exp(epsilon) * ncx2.cdf(ball, *outer)
        gone = ncx2.sf(shell, *outer) - math.exp(epsilon) * ncx2.sf(shell / s**2, *inner)
        return float(come), float(gone)

    def _system(self, sums: Sums) -> tuple[Float64[Tensor, "d d"], Float64[Tensor, "d classes"]]:
        """Return L with L L^T = A + lambda I, and B, of features of norm 1 at most."""
        gram, targets = sums.matrices()
        system = gram / MAX_NORM**2
        system.diagonal().add_(self.regularisation)
        lower: Tensor = torch.linalg.cholesky(system)  # pyright: ignore[reportUnknownMemberType]
        return lower, targets / MAX_NORM


def _least(delta_of: Callable[[float], float], delta: float) -> float:
    """Return the least epsilon whose delta is this one, or a little more; or infinity."""
    from scipy.optimize import root_scalar

    if delta_of(0.0) <= delta:
        return 0.0
    most = 1.0
    while delta_of(most) > delta:
        if most > LARGEST:
            return math.inf
        most *= 2
    solution = root_scalar(lambda e: delta_of(e) - delta, bracket=(0.0, most), xtol=ROUNDED_UP)
    step, epsilon = ROUNDED_UP, float(solution.root) + ROUNDED_UP
    while delta_of(epsilon) > delta:  # by what tails of chi-squared are rounded
        step *= 2
        epsilon += step
    return epsilon


@dataclass(frozen=True, slots=True, eq=False)
class Hidden:
    """Records in a head, as the attacker sees them who has all but them.

    Of a record's features of norm f, a = phi / f, and M of all others:

    Attributes:
        weights: w f^2.
        residuals: |t - B^T M^-1 phi| / f: of the head without noise and without it.
        kernels: a^T M^-1 a.
        lengths: |M^-1 a|.
    """

    noise: HeadNoise
    weights: Float64[ndarray, " records"]
    residuals: Float64[ndarray, " records"]
    kernels: Float64[ndarray, " records"]
    lengths: Float64[ndarray, " records"]

    @property
    def largest_residual(self) -> float:
        """The largest |t - B^T M^-1 phi| / f: R must not be below it."""
        return float(self.residuals.max(initial=0.0))

    def successes(self) -> Float64[ndarray, " records"]:
        """Return how often the likelihood ratio is right about each record.

        With u = a^T xi and v = (M^-1 a)^T xi in every direction of the classes,

            log p/q = [2 w <u, r - v> - w^2 |r - v|^2] / (2 sigma^2)
                      + (K - 1) log(1 + w a^T M^-1 a),    TV = E_q [1 - p/q]_+

        r is in one direction; what all others add is two chi-squared numbers.
        """
        sigma, k = self.noise.clip * self.noise.multiplier, self.noise.classes - 1
        z, first, second = _points(k)
        rest = np.sqrt(np.maximum(self.lengths**2 - self.kernels**2, 0))
        chances = np.empty(len(self.weights))
        for i, (w, r, kernel, length) in enumerate(
            zip(self.weights, self.residuals, self.kernels, rest, strict=True)
        ):
            v = np.array([kernel, length])  # v = v @ (u, another) in units of sigma
            moved = r / sigma - v @ z
            along = w * z[0] * moved - w**2 * moved**2 / 2
            form = -w * np.outer(v, [1, 0])
            values = np.linalg.eigvalsh((form + form.T - w**2 * np.outer(v, v)) / 2)
            ratio = along + values[0] * first + values[1] * second
            ratio += k * math.log1p(w * kernel)
            tv = np.maximum(0, -np.expm1(np.minimum(ratio, 0))).mean()
            chances[i] = 0.5 + 0.5 * tv
        return chances


@cache
def _points(
    directions: int,
) -> tuple[Float64[ndarray, "2 points"], Float64[ndarray, " points"], Float64[ndarray, " points"]]:
    """Return two standard normals, and two chi-squared numbers of one direction fewer."""
    from scipy.special import ndtri
    from scipy.stats import chi2
    from scipy.stats.qmc import Sobol

    sobol = Sobol(4, rng=np.random.default_rng(0)).random(POINTS)
    uniform = np.clip(sobol, 1e-12, 1 - 1e-12)
    rest = directions - 1
    if not rest:
        return ndtri(uniform[:, :2].T), np.zeros(POINTS), np.zeros(POINTS)
    return (ndtri(uniform[:, :2].T), chi2.ppf(uniform[:, 2], rest), chi2.ppf(uniform[:, 3], rest))
