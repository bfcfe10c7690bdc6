from .bounding import (
    MAX_NORM,
    bounded_client,
    bounded_records,
    joint_norm,
    target_norm,
)
from .checks import fault_of, fault_of_mean, fault_of_total
from .grid import (
    EXACT,
    FEATURE_STEPS,
    WEIGHT_STEPS,
    feature_grid,
    weight_steps,
)
from .leave_out import scores_without_client
from .noisy import SumNoise, noisy_head
from .perturbed import HeadNoise, Hidden
from .solving import Head, SentHead, diagonal_of, solved_head
from .state import ClusterSums
from .sums import Rows, Sums, sums_of

__all__ = [
    "EXACT",
    "FEATURE_STEPS",
    "MAX_NORM",
    "WEIGHT_STEPS",
    "ClusterSums",
    "Head",
    "HeadNoise",
    "Hidden",
    "Rows",
    "SentHead",
    "SumNoise",
    "Sums",
    "bounded_client",
    "bounded_records",
    "diagonal_of",
    "fault_of",
    "fault_of_mean",
    "fault_of_total",
    "feature_grid",
    "joint_norm",
    "noisy_head",
    "scores_without_client",
    "solved_head",
    "sums_of",
    "target_norm",
    "weight_steps",
]
