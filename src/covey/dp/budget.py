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
from dataclasses import dataclass
from functools import cache
from typing import Literal

from dp_accounting import GaussianDpEvent

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
    for each in {m for m in mechanisms if isinstance(m, GaussianDpEvent)}:
        if gaussian_epsilon(1 / each.noise_multiplier, delta) > epsilon:
            return False  # by itself: no accountant has to add up what has hardly any noise
    bound = epsilon_bound(mechanisms, delta) if mechanisms else None
    return not mechanisms or (bound is not None and bound.epsilon <= epsilon)


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a client releases in the rounds of a run.

    Attributes:
        model: who adds noise.
        multiplier: z of an update.
        rounding: what its entries add to 1 / z' under masks (`NoiseShares.rounding`).
        counts: z' of the counts of losses; None: they are not released under noise.
        every: rounds between two counts.
    """

    model: NoiseModel
    multiplier: float
    rounding: float = 0.0
    counts: float | None = None
    every: int = 1

    def hidden_by(self, weight: float = 1.0) -> float:
        """Return the multiplier of an update with this weight: 1 / (w / z + rounding)."""
        return 1 / (weight / self.multiplier + self.rounding)

    def over(self, rounds: int, weight: float = 1.0) -> tuple[Mechanism, ...]:
        """Return what so many rounds release of a client with this weight."""
        updates = (release(self.model, self.hidden_by(weight)),) * rounds
        if self.counts is None or not rounds:
            return updates
        return updates + (release(self.model, self.counts),) * (rounds // self.every + 1)

    def rounds_within(self, epsilon: float, delta: float, most: int) -> int:
        """Return how many rounds a budget lasts, up to so many."""

        def is_too_much(rounds: int) -> bool:
            return not fits(self.over(rounds), epsilon, delta)

        return bisect_left(range(1, most + 1), 1, key=is_too_much)


@cache
def weight_within(cost: RoundCost, epsilon: float, delta: float, rounds: int) -> float:
    """Return the largest weight, at most 1, with which a budget lasts all rounds; 0: none."""
    steps = round(1 / LEAST_WEIGHT)

    def too_much(step: int) -> bool:
        return not fits(cost.over(rounds, step / steps), epsilon, delta)

    return bisect_left(range(1, steps + 1), 1, key=too_much) / steps
