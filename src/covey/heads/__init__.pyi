from .exposure import error_precision, joined, likelihood_ratio_successes
from .grid import (
    FEATURE_STEPS,
    WEIGHT_STEPS,
    feature_grid,
    squared_steps,
    weight_steps,
)
from .leave_out import LeftOut, scores_without_client, scores_without_records
from .own_weight import OwnWeight
from .solving import Head, solved_head
from .spectrum import left_out_along
from .state import ClusterSums
from .sums import Rows, Sums, sums_of

__all__ = [
    "FEATURE_STEPS",
    "WEIGHT_STEPS",
    "ClusterSums",
    "Head",
    "LeftOut",
    "OwnWeight",
    "Rows",
    "Sums",
    "error_precision",
    "feature_grid",
    "joined",
    "left_out_along",
    "likelihood_ratio_successes",
    "scores_without_client",
    "scores_without_records",
    "solved_head",
    "squared_steps",
    "sums_of",
    "weight_steps",
]
