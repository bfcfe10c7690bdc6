from .account import aggregate_multiplier, guarantees
from .accountant import gaussian_epsilon
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
from .standing import Standing, spent_so_far, standing_of
from .theorem import claimed_epsilon, claimed_sigma, delivered

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
