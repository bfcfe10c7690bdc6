"""What a run's rounds are made of, as its settings have it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from covey.algorithms import Ifca, Send
from covey.build.settled import algorithm_of
from covey.config import Config
from covey.data import Population
from covey.engine import Engine, Recipe
from covey.rng import Streams
from covey.types import Params

__all__ = [
    "Components",
    "longer",
    "shared_rounds",
]

SPLIT_STEPS = 25
"""Least local steps of the warm start's split round: enough for the groups to show."""


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """What a method is composed of, beside its own steps.

    Attributes:
        init: draws a fresh model.
        send: how clients are asked that are remote; None: a simulation.
    """

    config: Config
    population: Population
    engine: Engine
    init: Callable[[Streams], Params]
    send: Send | None = None


def longer(recipe: Recipe) -> Recipe:
    """Return the recipe, with more local steps for clients whose usual round has few."""
    return replace(recipe, least_steps=SPLIT_STEPS)


def shared_rounds(config: Config) -> int:
    """Return for how long a warm start trains one model together; -1: no warm start."""
    algorithm = algorithm_of(config)
    warm = isinstance(algorithm, Ifca) and algorithm.starts_warm
    return min(3, config.rounds // 4) if warm else -1
