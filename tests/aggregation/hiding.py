"""Ways of hiding, as tests take them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from covey import AggregationResult
from covey.aggregation.anonymity import (
    AnonymitySets,
    Hiding,
    HidingRound,
    NoiseScale,
    dp_hiding,
    noise_scale,
)
from support.aggregating import aggregated

NO_NOISE = noise_scale("none", "l2", 0.0)


def hiding(k: int = 3, noise: NoiseScale = NO_NOISE, **settings: Any) -> Hiding:
    """Return sets of k, by MDAV unless settings say otherwise."""
    return Hiding(AnonymitySets(min_anonymity=k, deniability_threshold=1, **settings), noise)


def hidden_by(way: Hiding) -> Callable[..., AggregationResult]:
    """Return a function of models, updates and streams."""
    return partial(aggregated, partial(HidingRound, hiding=way))


def sound(k: int, radius: float = 1.0, z: float = 1.0) -> Hiding:
    """Return sets that look at no data, whose representatives are hidden by this much."""
    fixed: dict[str, Any] = {"partition": "public-random", "noise": "sound", "epsilon": 1.0}
    sets = AnonymitySets(min_anonymity=k, deniability_threshold=1, radius=radius, **fixed)
    return dp_hiding(sets, z)
