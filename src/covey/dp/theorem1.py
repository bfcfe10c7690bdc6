"""What the second paper's Theorem 1 claims, and what its Algorithm 1 delivers.

The theorem gives representatives noise of standard deviation sigma * Delta, with

    sigma^2 = T (1 + 8 L) / (7 eps^2),   L = ln(1 / delta)

and its proof counts noise of 2 sigma Delta and a sensitivity of Delta. Two updates in a
ball of radius Delta are up to 2 Delta apart, so that Algorithm 1 has the multiplier
sigma / 2. The printed sigma equals what the proof's own derivation gives, T (eps + 8 L)
/ (7 eps^2), at eps = 1 only.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Theorem 1 and Algorithm 1.
"""

import math

from covey.dp.accountant import EpsilonBound, epsilon_bound, gaussian

__all__ = ["claimed_epsilon", "claimed_sigma", "delivered_epsilon"]


def claimed_sigma(epsilon: float, delta: float, rounds: int) -> float:
    """Return the sigma that Theorem 1 prints for this epsilon."""
    return math.sqrt(rounds * (1 + 8 * math.log(1 / delta)) / 7) / epsilon


def claimed_epsilon(sigma: float, delta: float, rounds: int) -> float:
    """Return the epsilon for which Theorem 1 prints this sigma."""
    return claimed_sigma(sigma, delta, rounds)  # sigma * epsilon is the same for all


def delivered_epsilon(sigma: float, delta: float, rounds: int) -> EpsilonBound | None:
    """Return what T releases of Algorithm 1 cost, if its updates lie in the ball.

    The noise sigma Delta over the sensitivity 2 Delta is z = sigma / 2.
    """
    return epsilon_bound([gaussian(sigma / 2)] * rounds, delta)
