"""Which cluster a client joins: its own choice each round, and a first guess."""

from covey.clustering.base import (
    ByLoss,
    ByThreshold,
    ClusterSelection,
    Priced,
    Rebalanced,
    Weighted,
)
from covey.clustering.dp_selection import choice_epsilon, report_noisy_min
from covey.clustering.initial_clustering import Split, gap_split, update_directions
from covey.clustering.min_cluster_size import (
    acceptance_cost,
    cluster_shares,
    dual_ascent,
    rebalanced,
    select_priced,
    unconstrained_choice,
)
from covey.clustering.selection import (
    UNASSIGNED,
    Selection,
    SelectionInputs,
    select_by_loss,
    select_by_threshold,
    select_weighted,
    weighted_cost,
)

__all__ = [
    "UNASSIGNED",
    "ByLoss",
    "ByThreshold",
    "ClusterSelection",
    "Priced",
    "Rebalanced",
    "Selection",
    "SelectionInputs",
    "Split",
    "Weighted",
    "acceptance_cost",
    "choice_epsilon",
    "cluster_shares",
    "dual_ascent",
    "gap_split",
    "rebalanced",
    "report_noisy_min",
    "select_by_loss",
    "select_by_threshold",
    "select_priced",
    "select_weighted",
    "unconstrained_choice",
    "update_directions",
    "weighted_cost",
]
