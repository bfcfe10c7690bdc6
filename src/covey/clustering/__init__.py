"""Which cluster a client joins: its own choice each round, and a first guess."""

from covey.clustering.dp_selection import choice_epsilon, report_noisy_min
from covey.clustering.hysteresis import stay_settled
from covey.clustering.initial_clustering import Split, gap_split, update_directions
from covey.clustering.min_cluster_size import (
    acceptance_cost,
    ascended,
    rebalanced,
    select_priced,
    shares,
    wishes,
)
from covey.clustering.selection import (
    NOWHERE,
    Ballot,
    Selection,
    advantage,
    select_by_loss,
    select_by_threshold,
    select_weighted,
    weighted_cost,
)

__all__ = [
    "NOWHERE",
    "Ballot",
    "Selection",
    "Split",
    "acceptance_cost",
    "advantage",
    "ascended",
    "choice_epsilon",
    "gap_split",
    "rebalanced",
    "report_noisy_min",
    "select_by_loss",
    "select_by_threshold",
    "select_priced",
    "select_weighted",
    "shares",
    "stay_settled",
    "update_directions",
    "weighted_cost",
    "wishes",
]
