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
    "fresh_state",
    "from_groups",
    "ifca",
    "ifca_mir",
    "local_training",
    "one_model",
    "red_teamed",
    "train_with",
    "warm_started",
]
