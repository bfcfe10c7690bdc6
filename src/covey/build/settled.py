"""The components that the settings name, with their options."""

from covey.algorithms import Algorithm, Calibration
from covey.clustering import ClusterSelection, Selection
from covey.components import Capability, component_of
from covey.config import Config
from covey.errors import ConfigError
from covey.membership import RiskEstimator

__all__ = [
    "algorithm_of",
    "calibration_of",
    "estimator_needs",
    "estimator_of",
    "selection_of",
]


def algorithm_of(config: Config) -> Algorithm:
    """Return the algorithm that the settings name, with its options."""
    return component_of(config.method, "name", Algorithm)


def calibration_of(config: Config) -> Calibration:
    """Return how what clients sent is calibrated, when somebody leaves."""
    return component_of(config.unlearning, "calibration", Calibration)


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
