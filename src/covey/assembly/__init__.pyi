from .federation import Federation, Profile, Told
from .member import Chosen, Member
from .merges import merge_of
from .methods import (
    Again,
    Parts,
    composed,
    hangs_on_everybody,
    keeps_clusters_apart,
    red_team,
)
from .populations import data_hash
from .run import Assembled, Given, Own, assemble, member_of

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
