"""The table of built-in components: one line for each, by kind and name.

Nothing but this table and a component's own file knows its name. A new component is its
file and a line here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["BUILT_INS", "BuiltIn", "described"]


class BuiltIn(NamedTuple):
    """Where a built-in component is, and what it is in a few words of Markdown."""

    path: str
    about: str


BUILT_INS: Mapping[str, Mapping[str, BuiltIn]] = MappingProxyType(
    {
        "aggregation": {
            "mean": BuiltIn(
                "covey.aggregation.mean:Mean", "the weighted mean of updates"
            ),
            "anonymity-sets": BuiltIn(
                "covey.aggregation.anonymity_sets:AnonymitySets",
                "each update is hidden among at least k, and one speaks for them",
            ),
            "trimmed-mean": BuiltIn(
                "covey.aggregation.trimmed_mean:TrimmedMean",
                "the mean of every coordinate without its extremes (option "
                "`trim`: the share at either end)",
            ),
            "median": BuiltIn(
                "covey.aggregation.median:Median", "the median of every coordinate"
            ),
            "krum": BuiltIn(
                "covey.aggregation.krum:Krum",
                "the update closest to its neighbours (`outliers`: clients that may send "
                "anything; `chosen`: above 1 the mean of so many, Multi-Krum)",
            ),
            "norm-bounded": BuiltIn(
                "covey.aggregation.norm_bounded:NormBounded",
                "the mean of updates shortened to norm `max_norm`",
            ),
        },
        "algorithm": {
            "fedavg": BuiltIn(
                "covey.algorithms.fedavg:FedAvg", "one model for everybody"
            ),
            "ifca": BuiltIn(
                "covey.algorithms.ifca:Ifca",
                "every client trains the cluster model with the lowest loss",
            ),
            "ifca-mir": BuiltIn(
                "covey.algorithms.ifca:IfcaMir",
                "every client chooses its cluster by `selection`",
            ),
            "isolated": BuiltIn(
                "covey.algorithms.isolated:Isolated",
                "FedAvg in `num_clusters` clusters; each client is in one by chance, for "
                "good, and nothing is pooled",
            ),
            "local": BuiltIn(
                "covey.algorithms.fedavg:LocalTraining",
                "every client has a model of its own",
            ),
        },
        "selection": {
            "loss": BuiltIn("covey.clustering.base:ByLoss", "the lowest loss"),
            "weighted": BuiltIn(
                "covey.clustering.base:Weighted",
                "the paper's: the best `alpha * loss + beta * risk`",
            ),
            "threshold": BuiltIn(
                "covey.clustering.base:ByThreshold",
                "the lowest loss among clusters whose risk the client accepts",
            ),
            "priced": BuiltIn(
                "covey.clustering.base:Priced",
                "a subsidy per cluster keeps `target_share` in it",
            ),
            "rebalanced": BuiltIn(
                "covey.clustering.base:Rebalanced",
                "moves at random keep `target_share` in every cluster",
            ),
        },
        "server_optimizer": {
            "none": BuiltIn(
                "covey.aggregation.server_optimizers.base:NoServerOptimizer",
                "the aggregated models",
            ),
            "momentum": BuiltIn(
                "covey.aggregation.server_optimizers.momentum:Momentum",
                "FedAvgM (options `momentum`, `learning_rate`)",
            ),
            "adam": BuiltIn(
                "covey.aggregation.server_optimizers.adam:Adam",
                "FedAdam (`learning_rate`, `beta_1`, `beta_2`, `tau`)",
            ),
            "yogi": BuiltIn(
                "covey.aggregation.server_optimizers.yogi:Yogi", "FedYogi (the same)"
            ),
        },
    }
)


def described(kind: str) -> str:
    """Return what can be chosen of a kind, in Markdown, for the documentation."""
    names = (f"`{name}`: {each.about}" for name, each in BUILT_INS[kind].items())
    return f"{'; '.join(names)}; or `package.module:name`"
