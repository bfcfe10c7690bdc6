"""How clients' updates become the next cluster models, and the sets that hide them."""

from covey.aggregation.anonymity import (
    Ball,
    Hiding,
    in_anonymity_sets,
    noise_scales,
    soundly,
)
from covey.aggregation.merging import (
    ClientUpdate,
    Merge,
    Merged,
    mean_per_cluster,
    storing,
)
from covey.aggregation.microaggregation import (
    Sets,
    balanced_kmeans,
    diameters,
    mdav,
    neighbours,
    public_random,
    set_sizes,
    unit_rows,
)
from covey.aggregation.private import Clipping, noised_mean, projected
from covey.aggregation.refusing import (
    NOT_FINITE,
    Refusal,
    finite_updates,
    refusals,
)

__all__ = [
    "NOT_FINITE",
    "Ball",
    "ClientUpdate",
    "Clipping",
    "Hiding",
    "Merge",
    "Merged",
    "Refusal",
    "Sets",
    "balanced_kmeans",
    "diameters",
    "finite_updates",
    "in_anonymity_sets",
    "mdav",
    "mean_per_cluster",
    "neighbours",
    "noise_scales",
    "noised_mean",
    "projected",
    "public_random",
    "refusals",
    "set_sizes",
    "soundly",
    "storing",
    "unit_rows",
]
