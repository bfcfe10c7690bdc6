from .aggregators import merge_of
from .algorithms import (
    Again,
    Parts,
    composed,
    hangs_on_everybody,
    keeps_clusters_apart,
    red_team,
)
from .client_backend import Federation, Profile, Told
from .client_runtime import Chosen, Member
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
