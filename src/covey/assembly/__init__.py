"""From settings to functions: the only place where a string becomes behaviour."""

from covey.assembly.federation import Federation, Profile, Told
from covey.assembly.member import Chosen, Member
from covey.assembly.merges import merge_of
from covey.assembly.methods import (
    Again,
    Parts,
    composed,
    hangs_on_everybody,
    keeps_clusters_apart,
    red_team,
)
from covey.assembly.populations import data_hash
from covey.assembly.run import Assembled, Given, Own, assemble, member_of

__all__ = [
    "Again",
    "Assembled",
    "Chosen",
    "Federation",
    "Given",
    "Member",
    "Own",
    "Parts",
    "Profile",
    "Told",
    "assemble",
    "composed",
    "data_hash",
    "hangs_on_everybody",
    "keeps_clusters_apart",
    "member_of",
    "merge_of",
    "red_team",
]
