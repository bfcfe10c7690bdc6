"""The components that the settings name, with their options."""

from covey.algorithms import Algorithm, SummedUp
from covey.clustering import ClusterSelection, Selection
from covey.components import Capability, component_of
from covey.config import Config
from covey.errors import ConfigError
from covey.membership import RiskEstimator

__all__ = [
    "algorithm_of",
    "estimator_needs",
    "estimator_of",
    "masks_told",
    "selection_of",
    "summed_up",
]


def algorithm_of(config: Config) -> Algorithm:
    """Return the algorithm that the settings name, with its options."""
    return component_of(config.method, "name", Algorithm)


def selection_of(config: Config) -> ClusterSelection | Selection:
    """Return how clients choose: a component, or a user's function."""
    own = algorithm_of(config).own_selection
    return own or component_of(config.method, "selection", ClusterSelection)


def estimator_of(config: Config) -> RiskEstimator:
    """Return who measures the risk, with its options.

    Raises:
        ConfigError: it is no estimator of risk.
    """
    found = component_of(config.redteam, "source", RiskEstimator)
    if not isinstance(found, RiskEstimator):
        raise ConfigError(
            f"redteam.source = {config.redteam.source!r} must name a subclass of "
            f"covey.RiskEstimator, found a {type(found).__name__}. Name the class."
        )
    return found


def estimator_needs(config: Config, capability: Capability) -> bool:
    """Say whether the measurement of risk rests on this."""
    return capability in estimator_of(config).claim("redteam.source").requires


def summed_up(config: Config) -> frozenset[SummedUp]:
    """Return what of clients' a server needs sums of, for these settings."""
    estimator = estimator_of(config)
    of = "sums" if algorithm_of(config).subtracts else "updates"
    measured = Capability.MEASURED_RISK not in estimator.rules_out
    return frozenset((of, "counts") if measured and not estimator.on_clients else (of,))


def masks_told(config: Config) -> str:
    """Return against whom masks protect what clients add up; "": there are none."""
    if not config.privacy.secure_sums:
        return ""
    bare = {"counts": "counts of losses", "updates": "updates"}
    told = [bare[of] for of in sorted(summed_up(config) & bare.keys())]
    sums = (
        "Masks protect clients' sums over records from a malicious server too, as long as "
        "fewer than a fifth of the clients, and than min_cohort - 1, help it: a node opens "
        "sums over one cohort alone, in whatever runs."
    )
    if not told:
        return sums
    few = (
        f"Masks protect clients' {' and '.join(told)} from a server that keeps to the "
        f"protocol, and from no other: one that asks again without one client, about a "
        f"model that differs a little, has that client's own. Against it helps noise of "
        f"the clients' own alone (privacy.record_noise, in simulations)."
    )
    return f"{sums} {few}" if "sums" in summed_up(config) else few
