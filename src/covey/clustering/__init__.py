"""Which cluster a client joins: its own choice each round, and a first guess."""

from covey.clustering.selection import (
    Ballot,
    Selection,
    advantage,
    select_by_loss,
    select_by_threshold,
    select_weighted,
)
from covey.clustering.split import Split, gap_split, update_directions

__all__ = [
    "Ballot",
    "Selection",
    "Split",
    "advantage",
    "gap_split",
    "select_by_loss",
    "select_by_threshold",
    "select_weighted",
    "update_directions",
]
