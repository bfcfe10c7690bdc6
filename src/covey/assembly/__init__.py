"""From settings to functions: the only place where a string becomes behaviour."""

from covey.assembly.merges import merge_of
from covey.assembly.methods import (
    Again,
    composed,
    hangs_on_everybody,
    keeps_clusters_apart,
    red_team,
)
from covey.assembly.run import Assembled, Given, assemble

__all__ = [
    "Again",
    "Assembled",
    "Given",
    "assemble",
    "composed",
    "hangs_on_everybody",
    "keeps_clusters_apart",
    "merge_of",
    "red_team",
]
