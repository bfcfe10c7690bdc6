from .accountant import gaussian_epsilon
from .current_guarantee import Standing, spent_so_far, standing_of
from .empirical import Refuted, least_epsilon
from .guarantee import Guarantee
from .planner import (
    Plan,
    Size,
    forecast,
    multiplier,
    representative_noise,
    size_of,
    views,
)
from .run_guarantees import aggregate_multiplier, guarantees
from .theorem1 import claimed_epsilon, claimed_sigma, delivered

__all__ = [
    "Guarantee",
    "Plan",
    "Refuted",
    "Size",
    "Standing",
    "aggregate_multiplier",
    "claimed_epsilon",
    "claimed_sigma",
    "delivered",
    "forecast",
    "gaussian_epsilon",
    "guarantees",
    "least_epsilon",
    "multiplier",
    "representative_noise",
    "size_of",
    "spent_so_far",
    "standing_of",
    "views",
]
