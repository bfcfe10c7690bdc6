"""Whether what a cluster's clients send can reach another cluster's model.

A user's own code is believed where its own class says so. What it inherits says nothing:
it may have overridden what made it true.
"""

from covey.aggregation import Aggregation, ClusterwiseAggregation, ServerOptimizer
from covey.algorithms import Algorithm
from covey.components import Capability, Component, component_of, is_built_in
from covey.config import Config

__all__ = ["algorithm_isolates", "merging_isolates", "mixes_clusters"]


def algorithm_isolates(config: Config) -> bool:
    """Say whether the algorithm keeps every cluster to its own clients."""
    found = component_of(config.method, "name", Algorithm)
    told = is_built_in("algorithm", config.method.name) or _says(
        found, "isolates_clusters"
    )
    return told and found.isolates_clusters


def merging_isolates(config: Config) -> bool:
    """Say whether a cluster's next model hangs on its own clients alone."""
    return _aggregation_isolates(config) and _optimizer_isolates(config)


def mixes_clusters(config: Config) -> bool:
    """Say whether a user's own code may carry one cluster's clients into another.

    It may, unless it is known not to. What built-in components carry is recorded as it
    happens.
    """
    merge = config.merge
    own = {
        kind: not is_built_in(kind, name)
        for kind, name in (
            ("algorithm", config.method.name),
            ("aggregation", merge.name),
            ("server_optimizer", merge.server_optimizer),
        )
    }
    return (
        (own["algorithm"] and not algorithm_isolates(config))
        or (
            own["aggregation"]
            and not _aggregation_isolates(config)
            and not _is_clusterwise(component_of(merge, "name", Aggregation))
        )
        or (own["server_optimizer"] and not _optimizer_isolates(config))
    )


def _aggregation_isolates(config: Config) -> bool:
    found = component_of(config.merge, "name", Aggregation)
    return _keeps_apart(found, is_known=is_built_in("aggregation", config.merge.name))


def _optimizer_isolates(config: Config) -> bool:
    name = config.merge.server_optimizer
    found = component_of(config.merge, "server_optimizer", ServerOptimizer)
    return _keeps_apart(found, is_known=is_built_in("server_optimizer", name))


def _keeps_apart(component: object, *, is_known: bool) -> bool:
    """Say whether a component claims isolation, and may be believed."""
    if not isinstance(component, Component):
        return False
    told = is_known or _says(component, "rules_out") or _says(component, "claim")
    return told and Capability.CLUSTER_ISOLATION not in component.claim("").rules_out


def _is_clusterwise(component: object) -> bool:
    """Say whether it is only ever shown the updates of one cluster at a time."""
    return isinstance(component, ClusterwiseAggregation) and all(
        getattr(type(component), name) is getattr(ClusterwiseAggregation, name)
        for name in ("aggregate", "prepared")
    )


def _says(component: object, name: str) -> bool:
    return name in vars(type(component))
