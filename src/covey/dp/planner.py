"""What settings will guarantee, before a run is played: the account of facts to come."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from covey.dp.accountant import (
    Mechanism,
    epsilon_bound,
    gaussian,
    multiplier_for,
    representative,
)
from covey.dp.guarantee import Guarantee
from covey.dp.run_guarantees import aggregate_multiplier, guarantees
from covey.events import (
    ClientsAssigned,
    Event,
    ModelsMerged,
    RepresentativesPerturbed,
    StepsPerturbed,
    SumPerturbed,
)

__all__ = [
    "Noise",
    "NoisePlan",
    "NoiseSize",
    "adversary_views",
    "forecast",
    "multiplier",
    "noise_size",
    "representative_noise",
]

Noise = Literal["sound", "client", "record"]
"""Whose updates are noisy: anonymity sets' (`merge.noise`), clients', or records'."""


AS_PLANNED = (
    "the run is as planned: one model a round, sets of exactly this size, no round played "
    "again; choices of a cluster cost extra"
)


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """A run to come.

    Attributes:
        rounds: T; of each, `steps` gradient steps where records are protected.
        set_size: k, the members of an anonymity set, at least.
        sets: of equal size, behind each released model.
        clients: in every released model.
        sampling: chance that a client takes part in a round, or an example in a step.
    """

    noise: Noise
    rounds: int
    delta: float
    set_size: int = 1
    sets: int = 1
    clients: int = 1
    sampling: float = 1.0
    steps: int = 1


def forecast(plan: NoisePlan, noise_multiplier: float) -> Guarantee:
    """Return what a run with these settings guarantees, if its secret stays one."""
    facts = _facts(plan, noise_multiplier) * plan.rounds
    (found,) = guarantees(facts, plan.delta, secret=True)
    return replace(found, holds_if=(*found.holds_if, AS_PLANNED))


def multiplier(plan: NoisePlan, epsilon: float) -> float:
    """Return the least noise multiplier with which the run stays below epsilon."""
    if plan.noise == "sound":
        sizes = (plan.set_size,) * plan.sets
        return representative_noise(epsilon, plan.delta, plan.rounds, sizes)
    return multiplier_for(
        epsilon,
        plan.delta,
        plan.rounds * plan.steps,
        lambda z: gaussian(z, plan.sampling),
    )


@cache
def representative_noise(
    epsilon: float, delta: float, rounds: int, sizes: tuple[int, ...]
) -> float:
    """Return the least z that keeps noisy representatives of such sets below epsilon.

    A representative's noise has standard deviation 2 z Delta, and only the mean of all
    is released.
    """
    fewest = min(sizes)
    alone = multiplier_for(epsilon, delta, rounds, lambda z: representative(z, fewest))
    return alone / aggregate_multiplier(1.0, sizes)


def adversary_views(
    plan: NoisePlan, noise_multiplier: float
) -> Mapping[str, float | None]:
    """Return the epsilon of `sound` noise for adversaries who see more than is published.

    Every representative or only the mean of all, and knowing or not who spoke for a set.
    """
    together = aggregate_multiplier(noise_multiplier, (plan.set_size,) * plan.sets)
    found: dict[str, Mechanism] = {
        "each representative, and who it is": gaussian(noise_multiplier),
        "their mean, and who they are": gaussian(together),
        "each representative": representative(noise_multiplier, plan.set_size),
        "their mean": representative(together, plan.set_size),
    }
    costs = {
        name: epsilon_bound([each] * plan.rounds, plan.delta)
        for name, each in found.items()
    }
    return {name: cost.epsilon if cost else None for name, cost in costs.items()}


@dataclass(frozen=True, slots=True)
class NoiseSize:
    """The noise in a released model, beside what it hides.

    Attributes:
        noise: expected L2 norm of the noise.
        update: the largest L2 norm of one client's update, or one example's gradient; the
            mean of many that point to different sides is shorter.
    """

    noise: float
    update: float


def noise_size(
    plan: NoisePlan, noise_multiplier: float, bound: float, coordinates: int
) -> NoiseSize:
    """Return how large the noise in one release is, in a model of so many parameters."""
    if plan.noise == "sound":
        std = 2 * bound * noise_multiplier / math.sqrt(plan.sets)
    else:
        std = bound * noise_multiplier / (plan.clients * plan.sampling)
    return NoiseSize(std * math.sqrt(coordinates), bound)


def _facts(plan: NoisePlan, z: float) -> list[Event]:
    """Return what one round would record."""
    merged = ModelsMerged("", (plan.clients,))
    if plan.noise == "sound":
        sizes = (plan.set_size,) * plan.sets
        return [RepresentativesPerturbed(0, sizes, 1.0, z), merged]
    if plan.noise == "client":
        return [SumPerturbed(0, 1.0, z, plan.sampling), merged]
    somebody = {"": plan.steps}
    return [
        ClientsAssigned({"": 0}, "shared"),
        StepsPerturbed(z, somebody, {"": plan.sampling}),
        merged,
    ]
