"""What a run's rounds are made of, as its settings have it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from covey.algorithms import Send
from covey.config import Config
from covey.data import Population
from covey.engine import Engine, Recipe
from covey.engine.fixed_features import LocalRecords
from covey.rng import Streams
from covey.types import Params

__all__ = [
    "Components",
    "longer",
]

SPLIT_STEPS = 25
"""Least local steps of the warm start's split round: enough for the groups to show."""


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """What a method is composed of, beside its own steps.

    Attributes:
        init: draws a fresh model.
        send: how clients are asked that are remote; None: a simulation.
        records: clients' records as fixed features, where the model has them; where they
            are remote, what is known of these features.
    """

    config: Config
    population: Population
    engine: Engine
    init: Callable[[Streams], Params]
    send: Send | None = None
    records: LocalRecords | None = None


def longer(recipe: Recipe) -> Recipe:
    """Return the recipe, with more local steps for clients whose usual round has few."""
    return replace(recipe, least_steps=SPLIT_STEPS)
