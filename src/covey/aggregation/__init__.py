"""How clients' updates become the next cluster models, and the sets that hide them."""

from covey.aggregation.anonymity import (
    AnonymityConfig,
    L2Bound,
    anonymity_aggregator,
    dp_anonymity,
    noise_scale,
)
from covey.aggregation.anonymity_sets import AnonymitySets
from covey.aggregation.base import (
    Aggregation,
    AnonymityTerms,
    ClusterwiseAggregation,
    FederationInfo,
)
from covey.aggregation.geometric_median import GeometricMedian
from covey.aggregation.krum import Krum
from covey.aggregation.masked_mean import (
    arrived_mean,
    masked_mean,
    mean_of_numbers,
    numbers_of_update,
)
from covey.aggregation.mean import Mean
from covey.aggregation.median import Median
from covey.aggregation.merging import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    mean_per_cluster,
    with_stored_updates,
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
from covey.aggregation.norm_bounded import NormBounded
from covey.aggregation.private import Clipping, noised_mean, projected
from covey.aggregation.recall import RecallableUpdates
from covey.aggregation.refusing import (
    NOT_FINITE,
    RefusedUpdate,
    finite_updates,
    refusal_events,
)
from covey.aggregation.server_optimizers.base import (
    NoServerOptimizer,
    ServerOptimizer,
    ServerStep,
)
from covey.aggregation.sketches import Sketcher, sketch_error, sketch_size, sketcher
from covey.aggregation.trimmed_mean import TrimmedMean

__all__ = [
    "NOT_FINITE",
    "Aggregation",
    "AggregationResult",
    "Aggregator",
    "AnonymityConfig",
    "AnonymitySets",
    "AnonymityTerms",
    "ClientUpdate",
    "Clipping",
    "ClusterwiseAggregation",
    "FederationInfo",
    "GeometricMedian",
    "Krum",
    "L2Bound",
    "Mean",
    "Median",
    "NoServerOptimizer",
    "NormBounded",
    "RecallableUpdates",
    "RefusedUpdate",
    "ServerOptimizer",
    "ServerStep",
    "Sets",
    "Sketcher",
    "TrimmedMean",
    "anonymity_aggregator",
    "arrived_mean",
    "balanced_kmeans",
    "diameters",
    "dp_anonymity",
    "finite_updates",
    "masked_mean",
    "mdav",
    "mean_of_numbers",
    "mean_per_cluster",
    "neighbours",
    "noise_scale",
    "noised_mean",
    "numbers_of_update",
    "projected",
    "public_random",
    "refusal_events",
    "sketch_error",
    "sketch_size",
    "sketcher",
    "unit_rows",
    "with_stored_updates",
]
