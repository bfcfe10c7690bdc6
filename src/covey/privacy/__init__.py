"""What a run guarantees: differential privacy, accounted for and checked.

`guarantees` folds the facts of a run, `standing_of` its history; `forecast` says the same
of settings; `theorem` holds what the second paper claims.
"""

from covey.privacy.account import aggregate_multiplier, guarantees
from covey.privacy.accountant import gaussian_epsilon
from covey.privacy.empirical import Refuted, least_epsilon
from covey.privacy.forecast import (
    Plan,
    Size,
    forecast,
    multiplier,
    representative_noise,
    size_of,
    views,
)
from covey.privacy.guarantee import Guarantee
from covey.privacy.standing import Standing, spent_so_far, standing_of
from covey.privacy.theorem import claimed_epsilon, claimed_sigma, delivered

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
