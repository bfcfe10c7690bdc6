from .accountant import gaussian_epsilon
from .current_guarantee import GuaranteeStatus, epsilon_over_rounds, guarantee_status
from .empirical import RefutedEpsilon, least_epsilon, least_success
from .guarantee import Guarantee
from .planner import (
    NoisePlan,
    NoiseSize,
    adversary_views,
    forecast,
    multiplier,
    noise_size,
    representative_noise,
)
from .run_guarantees import aggregate_multiplier, guarantees
from .theorem1 import claimed_epsilon, claimed_sigma, delivered_epsilon

__all__ = [
    "Guarantee",
    "GuaranteeStatus",
    "NoisePlan",
    "NoiseSize",
    "RefutedEpsilon",
    "adversary_views",
    "aggregate_multiplier",
    "claimed_epsilon",
    "claimed_sigma",
    "delivered_epsilon",
    "epsilon_over_rounds",
    "forecast",
    "gaussian_epsilon",
    "guarantee_status",
    "guarantees",
    "least_epsilon",
    "least_success",
    "multiplier",
    "noise_size",
    "representative_noise",
]
