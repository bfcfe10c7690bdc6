"""Noise that clients add themselves, under masks: each a share, and only the sum has it all.

Every client i rounds what it sends to a grid, and adds discrete Gaussian noise to it:

    y_i = round(x_i / h) + Y_i,    P(Y = k) ~ exp(-k^2 / (2 S^2)),    S = 2^16
    h = z C / (S sqrt(m))

C bounds |x_i|, and m clients of every sum that is opened keep their noise to themselves:
the fewest clients that a sum may be over, less those who help the server. So whoever drops
out before, a sum has noise of standard deviation z C at least. One client moves it by
|round(x_i / h)| <= C / h + sqrt(d) / 2 steps in d coordinates, which costs

    rho = 1 / (2 z'^2),    1 / z' = 1 / z + sqrt(d) / (2 S sqrt(m))

of concentrated differential privacy. A sum of m discrete Gaussians is none, but within 10 m
exp(-pi^2 S^2) of one in all that rho is made of: that is 0. Sums are mod 2^64, which reveals
nothing that they do not; what could wrap around is refused, as it would be another number.

References:
    Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, 2020:
    Theorem 4 (rho), Algorithm 3 (rejection from a discrete Laplace).
    Kairouz, Liu, Steinke, The Distributed Discrete Gaussian Mechanism for Federated
    Learning with Secure Aggregation, 2021: Theorem 1 (sums), Section 4 (rounding).
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64

from covey.base.errors import ConfigError
from covey.base.names import Unit
from covey.base.rng import Draws, words_of

Numbers = Int64[np.ndarray, " numbers"]

S = 2**16
"""Standard deviation of every client's noise, in steps."""

RING = 2**63
MOST = 2**45
"""Steps that an entry may have, so that sums over 2^18 clients do not wrap around."""

DOUBT = 2.0**-38
"""More than `numpy` errs in a logarithm or an exponential; what is nearer is decided exactly."""


@dataclass(frozen=True, slots=True)
class NoiseShares:
    """What every client of a sum adds, so that the sum hides each of them.

    Attributes:
        bound: C, the largest L2 norm of what a client adds to a sum.
        multiplier: z: noise of a sum has a standard deviation of z C at least.
        honest: m, how many clients of every sum keep their noise to themselves.
        unit: what C bounds, and the noise hides: all that a client adds, or each record's
            part of it.
    """

    bound: float
    multiplier: float
    honest: int
    unit: Unit = "client"

    @property
    def step(self) -> float:
        """Return h."""
        return self.multiplier * self.bound / (S * math.sqrt(self.honest))

    def std(self, clients: int) -> float:
        """Return the standard deviation of the noise in a sum over so many clients."""
        return self.step * S * math.sqrt(clients)

    def rounding(self, coordinates: int) -> float:
        """Return what rounding so many coordinates adds to 1 / z'.

        A client is there or not, and what it adds is rounded by half a step; with a record
        more or less, two numbers are, and part by a whole one.
        """
        rounded = 0.5 if self.unit == "client" else 1.0
        return rounded * math.sqrt(coordinates) / (S * math.sqrt(self.honest))

    def effective_multiplier(self, coordinates: int) -> float:
        """Return z', which is z less what rounding so many coordinates adds to a client's norm."""
        return 1 / (1 / self.multiplier + self.rounding(coordinates))

    def numbers(self, values: Float64[np.ndarray, " numbers"], draws: Draws) -> Numbers:
        """Return what a client sends: its values in steps, under its share of the noise.

        Args:
            values: longer ones than C are shortened, unless it is their parts that C bounds.
            draws: the client's own, used for nothing else.

        Raises:
            ConfigError: the bound is none, or there is so little noise that sums would wrap
                around.
        """
        if not 0 < self.step < math.inf:
            raise ConfigError(
                f"Noise's bound must be above 0, found {self.bound}: correct learning rate or clip."
            )
        length = float(np.linalg.norm(values)) if self.unit == "client" else 0.0
        steps = values * (min(1.0, self.bound / length) if length else 1.0) / self.step
        if self.bound / self.step > MOST:
            raise ConfigError(
                f"multiplier must be over 2^-32, found {self.multiplier}: raise "
                f"privacy.client_noise."
            )
        return np.rint(steps).astype(np.int64) + discrete_gaussian(len(steps), draws)

    def values(self, numbers: Numbers) -> Float64[np.ndarray, " numbers"]:
        """Return what a sum of such numbers stands for."""
        return numbers * self.step


def discrete_gaussian(count: int, draws: Draws) -> Numbers:
    """Return independent whole numbers with P(k) ~ exp(-k^2 / (2 S^2)), exactly.

    A discrete Laplace number k = +-floor(-S ln U) is kept with probability
    exp(-(|k| - S)^2 / (2 S^2)); a zero with a minus sign never is. Comparisons that a float
    cannot decide are decided by as many digits as they take: no bit depends on a machine.
    """
    parts, missing = [np.zeros(0, dtype=np.int64)], count
    while missing > 0:
        proposals = int(missing / 0.75) + 16  # of which sqrt(pi / (2 e)) = .76 are kept
        sizes = _exponential(words_of(draws, proposals), draws)
        coins = words_of(draws, proposals)
        negative = (coins & 1).astype(bool)
        stays = _below_exponential(coins >> 1, 63, (sizes - S) ** 2, 2 * S * S, draws)
        stays &= ~(negative & (sizes == 0))
        accepted = np.where(negative, -sizes, sizes)[stays][:missing]
        parts.append(accepted)
        missing -= len(accepted)
    return np.concatenate(parts)


def _exponential(words: UInt64[np.ndarray, " draws"], draws: Draws) -> Int64[np.ndarray, " draws"]:
    """Return floor(-S ln U) of uniform numbers, of which these are the first 64 bits."""
    least = -S * np.log((words.astype(np.float64) + 1) * 2.0**-64)
    # how much is left to the bits that were not drawn, and to rounding
    spread = S * (DOUBT + 2 / (words.astype(np.float64) + 1))
    sizes = np.floor(least).astype(np.int64)
    unsure = np.floor(least - spread) != np.floor(least + spread)
    for i in np.flatnonzero(unsure):
        uniform, size = _Uniform(int(words[i]), 64, draws), max(0, int(least[i] - 1))
        while uniform.is_below_exponential(Fraction(size + 1, S)):
            size += 1
        sizes[i] = size
    return sizes


def _below_exponential(
    words: UInt64[np.ndarray, " draws"],
    length: int,
    above: Int64[np.ndarray, " draws"],
    below: int,
    draws: Draws,
) -> Bool[np.ndarray, " draws"]:
    """Say which uniform numbers, of so many bits to begin with, are below exp(-above / below)."""
    difference = words.astype(np.float64) * 2.0**-length - np.exp(-above / below)
    result = difference < 0
    for i in np.flatnonzero(np.abs(difference) < DOUBT):
        uniform = _Uniform(int(words[i]), length, draws)
        result[i] = uniform.is_below_exponential(Fraction(int(above[i]), below))
    return result


@dataclass(slots=True)
class _Uniform:
    """A uniform number in [0, 1), of which as many bits are drawn as a comparison takes."""

    bits: int
    length: int
    draws: Draws

    def is_below_exponential(self, exponent: Fraction) -> bool:
        """Say whether it is below exp(-exponent)."""
        while True:
            with localcontext() as context:
                context.prec = self.length  # decimal digits: thrice what the bits have
                power = (-Decimal(exponent.numerator) / exponent.denominator).exp()
                margin = Decimal(2) ** -(2 * self.length)
                unit = Decimal(2) ** -self.length
                if (self.bits + 1) * unit < power - margin:
                    return True
                if self.bits * unit > power + margin:
                    return False
            (more,) = words_of(self.draws, 1)
            self.bits, self.length = (self.bits << 64) | int(more), self.length + 64
