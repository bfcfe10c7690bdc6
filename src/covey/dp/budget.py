"""Budgets of single clients: what each has spent, and what it may still release.

Every client pays for its own releases (individual accounting): one that counts with a weight
w in a sum is hidden by a multiplier z / w, and pays nothing in a round without it.

References:
    Feldman, Zrnic, Individual Privacy Accounting via a Renyi Filter, 2021.
    Boenisch, Muehl, Dziedzic, Rinberg, Papernot, Have it your way: Individualized Privacy
    Assignment for DP-SGD, 2023: weights that follow from budgets.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Literal

from dp_accounting import GaussianDpEvent

from covey.aggregation.privacy import PrivacyPlan
from covey.base.names import NoiseModel
from covey.dp.accountant import Mechanism, choice, epsilon_bound, gaussian, gaussian_epsilon, shares

LEAST_WEIGHT = 1e-3
"""Weights are multiples of it."""


def release(model: NoiseModel | Literal["choice"], multiplier: float) -> Mechanism:
    """Return one release, as it costs the client alone; `local` hides any two of its updates.

    Of a choice the number is its epsilon.
    """
    if model == "choice":
        return choice(multiplier)
    if model == "distributed":
        return shares(multiplier)
    return gaussian(multiplier / 2 if model == "local" else multiplier)


def fits(mechanisms: Sequence[Mechanism], epsilon: float, delta: float) -> bool:
    """Say whether these releases together stay within a budget; unknown: they do not."""
    for mechanism in {m for m in mechanisms if isinstance(m, GaussianDpEvent)}:
        if gaussian_epsilon(1 / mechanism.noise_multiplier, delta) > epsilon:
            return False  # by itself: no accountant has to add up what has hardly any noise
    bound = epsilon_bound(mechanisms, delta) if mechanisms else None
    return not mechanisms or (bound is not None and bound.epsilon <= epsilon)


def released(
    plan: PrivacyPlan, coordinates: int, rounds: int, weight: float = 1.0
) -> tuple[Mechanism, ...]:
    """Return what so many rounds release of a client with this weight.

    Args:
        plan: by which noise hides clients.
        coordinates: of an update.
        rounds: in which it takes part.
        weight: w, with which it counts.
    """
    updates = (release(plan.by, plan.hidden_by(coordinates, weight)),) * rounds
    shares = plan.shares()
    if not (shares and plan.counts and rounds):
        return updates
    counts = release(plan.by, shares.effective_multiplier(plan.counts))
    return updates + (counts,) * (rounds // plan.counts_every + 1)


def rounds_within(plan: PrivacyPlan, coordinates: int, epsilon: float, most: int) -> int:
    """Return how many rounds a budget lasts, up to so many."""

    def is_too_much(rounds: int) -> bool:
        return not fits(released(plan, coordinates, rounds), epsilon, plan.delta)

    return bisect_left(range(1, most + 1), 1, key=is_too_much)


@cache
def weight_within(plan: PrivacyPlan, coordinates: int, epsilon: float) -> float:
    """Return the largest weight, at most 1, with which a budget lasts all rounds; 0: none."""
    steps = round(1 / LEAST_WEIGHT)

    def is_too_much(step: int) -> bool:
        spent = released(plan, coordinates, plan.rounds, step / steps)
        return not fits(spent, epsilon, plan.delta)

    return bisect_left(range(1, steps + 1), 1, key=is_too_much) / steps
