from .bounding import (
    MAX_NORM,
    bounded_client,
    bounded_records,
    joint_norm,
    target_norm,
)
from .checks import fault_of, fault_of_mean, fault_of_total
from .exposure import error_precision, joined, likelihood_ratio_successes
from .grid import (
    EXACT,
    FEATURE_STEPS,
    WEIGHT_STEPS,
    feature_grid,
    squared_steps,
    weight_steps,
)
from .leave_out import LeftOut, scores_without_client, scores_without_records
from .noisy import SumNoise, noisy_head
from .own_weight import OwnWeight
from .solving import Head, SentHead, diagonal_of, solved_head
from .spectrum import left_out_along
from .state import ClusterSums
from .sums import Rows, Sums, sums_of

__all__ = [
    "EXACT",
    "FEATURE_STEPS",
    "MAX_NORM",
    "WEIGHT_STEPS",
    "ClusterSums",
    "Head",
    "LeftOut",
    "OwnWeight",
    "Rows",
    "SentHead",
    "SumNoise",
    "Sums",
    "bounded_client",
    "bounded_records",
    "diagonal_of",
    "error_precision",
    "fault_of",
    "fault_of_mean",
    "fault_of_total",
    "feature_grid",
    "joined",
    "joint_norm",
    "left_out_along",
    "likelihood_ratio_successes",
    "noisy_head",
    "scores_without_client",
    "scores_without_records",
    "solved_head",
    "squared_steps",
    "sums_of",
    "target_norm",
    "weight_steps",
]
