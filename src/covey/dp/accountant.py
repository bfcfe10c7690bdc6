"""The privacy cost of several noisy mechanisms together, and what Theorem 1 claims.

There are two relations between neighbouring data. Where a sum over all is released, one client
(or record) contributes or does not: the sensitivity of a Gaussian is the clip. Where one member
of a set is drawn as its representative, one member is replaced by another: sampling without
replacement is accounted for by Renyi divergence in that relation only, and the multiplier of a
Gaussian is in units of what a replacement can change.

Theorem 1 of the second paper gives representatives noise of standard deviation sigma * Delta,
with

    sigma^2 = T (1 + 8 L) / (7 eps^2),   L = ln(1 / delta)

and its proof counts noise of 2 sigma Delta and a sensitivity of Delta. Two updates in a ball of
radius Delta are up to 2 Delta apart, so that Algorithm 1 has the multiplier sigma / 2. The
printed sigma equals what the proof's own derivation gives, T (eps + 8 L) / (7 eps^2), at eps = 1
only.

References:
    Balle, Wang, Improving the Gaussian Mechanism for Differential Privacy, 2018, Theorem 8.
    Koskela et al., Computing Tight Differential Privacy Guarantees Using FFT, 2020.
    Mironov, Renyi Differential Privacy, 2017.
    Wang, Balle, Kasiviswanathan, Subsampled Renyi Differential Privacy, 2019.
    Cesar, Rogers, Bounding, Concentrating, and Truncating, 2021, for choices.
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Theorem 1 and Algorithm 1.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    ExplicitBracketInterval,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    PrivacyAccountant,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
    calibrate_dp_mechanism,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import root_scalar
from scipy.stats import norm

Relation = Literal["contributes or not", "replaced by another"]
Name = Literal["PLD", "RDP"]
Mechanism = DpEvent
"""One release, as dp-accounting describes it."""

GRID = 1e-3
"""Width of the accountant's privacy loss cells, in nats; rounded up, so never too low."""
ORDERS = (*range(2, 25), *range(28, 64, 4), *range(64, 97, 8), 112, 128)
"""Renyi orders; sampling without replacement is known for whole ones only."""
ROUNDED_UP = 1e-4
"""Share by which the closed form's multiplier is raised, as cells add to epsilon."""
MIN_NOISE = 0.2
"""A multiplier that is hardly looked below: accounting for less takes ever longer."""


@dataclass(frozen=True, slots=True)
class EpsilonBound:
    """What mechanisms cost together: never below the truth.

    Attributes:
        relation: between the neighbouring data for which this holds.
        accountant: "PLD" (privacy loss distributions), or "RDP" (Renyi divergence).
    """

    epsilon: float
    relation: Relation
    accountant: Name


def gaussian(noise_multiplier: float, sampling: float = 1.0) -> Mechanism:
    """Return a sum with Gaussian noise, each contribution in it by a coin of its own.

    Args:
        noise_multiplier: z, the noise's standard deviation over the largest norm of one
            contribution.
        sampling: the coin's chance; 1: everybody contributes.
    """
    noisy = GaussianDpEvent(noise_multiplier)
    return noisy if sampling >= 1 else PoissonSampledDpEvent(sampling, noisy)


def representative(noise_multiplier: float, set_size: int) -> Mechanism:
    """Return a secret member of a set, speaking with Gaussian noise.

    Args:
        noise_multiplier: the noise's standard deviation over what replacing the speaker
            can change: 2 Delta in a ball of radius Delta.
        set_size: members who may have spoken.
    """
    noisy = GaussianDpEvent(noise_multiplier)
    return SampledWithoutReplacementDpEvent(set_size, 1, noisy)


def shares(noise_multiplier: float) -> Mechanism:
    """Return a sum with discrete Gaussian noise: 1 / (2 z^2) concentrated.

    Args:
        noise_multiplier: z' of `covey.secure_sums.noise`.
    """
    return ZCDpEvent(1 / (2 * noise_multiplier**2))


def choice(epsilon: float) -> Mechanism:
    """Return one choice by the exponential mechanism: epsilon^2 / 8 concentrated."""
    return ZCDpEvent(epsilon**2 / 8)


def epsilon_bound(mechanisms: Iterable[Mechanism], delta: float) -> EpsilonBound | None:
    """Return what these releases cost together, in whatever order and adaptively.

    Returns:
        None where no accountant has their composition.
    """
    counted = Counter(mechanisms)
    return _epsilon_bound(tuple(sorted(counted.items(), key=str)), delta)


@cache
def _epsilon_bound(counted: tuple[tuple[Mechanism, int], ...], delta: float) -> EpsilonBound | None:
    together = ComposedDpEvent([SelfComposedDpEvent(event, n) for event, n in counted])
    accounts: tuple[tuple[PrivacyAccountant, Relation, Name], ...] = (  # the tightest first
        (_pld(), "contributes or not", "PLD"),
        (RdpAccountant(ORDERS), "contributes or not", "RDP"),
        (_rdp_replacing(), "replaced by another", "RDP"),
    )
    for account, relation, name in accounts:
        if account.supports(together):
            epsilon = float(account.compose(together).get_epsilon(delta))
            return EpsilonBound(epsilon, relation, name) if math.isfinite(epsilon) else None
    return None


def multiplier_for(
    epsilon: float, delta: float, rounds: int, mechanism: Callable[[float], Mechanism]
) -> float:
    """Return the least noise multiplier that keeps so many rounds below epsilon.

    Args:
        epsilon: what may be spent.
        delta: with this probability of failure.
        rounds: releases of the same mechanism.
        mechanism: one release, from its noise multiplier.
    """

    def repeated(noise_multiplier: float) -> DpEvent:
        return SelfComposedDpEvent(mechanism(noise_multiplier), rounds)

    undone = root_scalar(
        lambda mu: gaussian_epsilon(mu, delta) - epsilon, bracket=(1e-6, 10 + 2 * epsilon)
    )
    unsampled = math.sqrt(rounds) / float(undone.root)
    if isinstance(mechanism(1.0), GaussianDpEvent):
        # raised until the accountant agrees: its cells are a larger share of a small epsilon
        raised = ROUNDED_UP
        while bound := _epsilon_bound(((mechanism(unsampled * (1 + raised)), rounds),), delta):
            if bound.epsilon <= epsilon:
                break
            raised *= 2
        return unsampled * (1 + raised)
    bracket = ExplicitBracketInterval(min(MIN_NOISE, unsampled / 2), 1.25 * unsampled)
    accountant = _pld if _pld().supports(repeated(1.0)) else _rdp_replacing
    return float(
        calibrate_dp_mechanism(accountant, repeated, epsilon, delta, bracket, tol=5e-4 * unsampled)
    )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-Gaussian differential privacy, exactly.

    delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu)

    T Gaussian releases with multiplier z have mu = sqrt(T) / z.

    References:
        Balle, Wang 2018, Theorem 8; Dong, Roth, Su 2022, Corollary 2.13.
    """
    if mu <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        above = norm.cdf(mu / 2 - epsilon / mu)
        below = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(above - below - delta)

    if excess(0.0) <= 0:
        return 0.0
    return float(root_scalar(excess, bracket=(0.0, 50 * mu * (1 + mu))).root)


def _pld() -> PrivacyAccountant:
    return PLDAccountant(value_discretization_interval=GRID)


def _rdp_replacing() -> PrivacyAccountant:
    return RdpAccountant(ORDERS, neighboring_relation=NeighboringRelation.REPLACE_ONE)


def claimed_sigma(epsilon: float, delta: float, rounds: int) -> float:
    """Return the sigma that Theorem 1 prints for this epsilon."""
    return math.sqrt(rounds * (1 + 8 * math.log(1 / delta)) / 7) / epsilon


def formula_epsilon(sigma: float, delta: float, rounds: int) -> float:
    """Return the epsilon for which the formula of Theorem 1 gives this sigma, in range or not."""
    return claimed_sigma(sigma, delta, rounds)  # sigma * epsilon is the same for all


def theorem_range(delta: float) -> float:
    """Return 8 log(1/delta): Theorem 1 is about epsilons below it."""
    return 8 * math.log(1 / delta)


def claimed_epsilon(sigma: float, delta: float, rounds: int) -> float | None:
    """Return the epsilon that Theorem 1 claims for this sigma; None: it claims none."""
    epsilon = formula_epsilon(sigma, delta, rounds)
    return epsilon if epsilon < theorem_range(delta) else None


def delivered_epsilon(sigma: float, delta: float, rounds: int) -> EpsilonBound | None:
    """Return what T releases of Algorithm 1 cost, if its updates lie in the ball.

    The noise sigma Delta over the sensitivity 2 Delta is z = sigma / 2.
    """
    return epsilon_bound([gaussian(sigma / 2)] * rounds, delta)
