"""Algorithms of federated learning, composed of train, evaluate, select and merge."""

from covey.strategies.base import (
    Cohort,
    Played,
    ServerState,
    Strategy,
    fresh_state,
)
from covey.strategies.fedavg import fedavg, local_training
from covey.strategies.ifca import ifca, ifca_mir
from covey.strategies.pooling import (
    Control,
    fixed_share,
    head_first,
    pooled,
    share_by_risk,
    uniform,
)
from covey.strategies.redteam import figure_lives, red_teamed
from covey.strategies.starts import (
    WarmStart,
    different_models,
    from_groups,
    one_model,
    warm_started,
)
from covey.strategies.steps import Evaluate, Steps, Train, evaluate_with, train_with

__all__ = [
    "Cohort",
    "Control",
    "Evaluate",
    "Played",
    "ServerState",
    "Steps",
    "Strategy",
    "Train",
    "WarmStart",
    "different_models",
    "evaluate_with",
    "fedavg",
    "figure_lives",
    "fixed_share",
    "fresh_state",
    "from_groups",
    "head_first",
    "ifca",
    "ifca_mir",
    "local_training",
    "one_model",
    "pooled",
    "red_teamed",
    "share_by_risk",
    "train_with",
    "uniform",
    "warm_started",
]
