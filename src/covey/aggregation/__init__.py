"""How clients' updates become the next cluster models, and the sets that hide them."""

from covey.aggregation.anonymity import Hiding, in_anonymity_sets, noise_scales
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
    unit_rows,
)

__all__ = [
    "ClientUpdate",
    "Hiding",
    "Merge",
    "Merged",
    "Sets",
    "balanced_kmeans",
    "diameters",
    "in_anonymity_sets",
    "mdav",
    "mean_per_cluster",
    "neighbours",
    "noise_scales",
    "public_random",
    "storing",
    "unit_rows",
]
