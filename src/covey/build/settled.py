"""The components that the settings name, with their options."""

from covey.algorithms import Algorithm
from covey.clustering import ClusterSelection, Selection
from covey.components import component_of, create
from covey.config import Config

__all__ = ["algorithm_of", "selection_of"]


def algorithm_of(config: Config) -> Algorithm:
    """Return the algorithm that the settings name, with its options."""
    return component_of(config.method, "name", Algorithm)


def selection_of(config: Config) -> ClusterSelection | Selection:
    """Return how clients choose: a component, or a user's function."""
    fixed = algorithm_of(config).selection_name
    if fixed is not None:
        return create("selection", fixed, {}, "method.selection", base=ClusterSelection)
    return component_of(config.method, "selection", ClusterSelection)
