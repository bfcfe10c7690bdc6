"""The components that the settings name, with their options."""

from covey.algorithms import Algorithm, Calibration
from covey.clustering import ClusterSelection, Selection
from covey.components import (
    Capability,
    ComponentSection,
    component_of,
    create,
    find,
    is_built_in,
    options_key,
    source_hash,
)
from covey.config import Config
from covey.errors import ConfigError
from covey.events import ComponentsUsed
from covey.membership import RiskEstimator

__all__ = [
    "algorithm_of",
    "calibration_of",
    "components_used",
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
    fixed = algorithm_of(config).selection_name
    if fixed is not None:
        return create("selection", fixed, {}, "method.selection", base=ClusterSelection)
    return component_of(config.method, "selection", ClusterSelection)


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


def components_used(config: Config) -> tuple[ComponentsUsed, ...]:
    """Return the fact which components are a user's own or have options, if any do."""
    found: dict[str, dict[str, object]] = {}
    for _, section in config:
        if isinstance(section, ComponentSection):
            found |= _named_in(section)
    if not found:
        return ()
    mixes = (
        not is_built_in("algorithm", config.method.name)
        and not algorithm_of(config).isolates_clusters
    )
    return (ComponentsUsed(found, mixes),)


def _named_in(section: ComponentSection) -> dict[str, dict[str, object]]:
    """Return the components of one section that are worth a record."""
    found: dict[str, dict[str, object]] = {}
    for field, kind in type(section).slots.items():
        name, key = getattr(section, field), f"{type(section).section}.{field}"
        options = getattr(section, options_key(field))
        usual = type(section).model_fields[field].default
        if not options and (name == usual or is_built_in(kind, name)):
            continue
        source = "" if is_built_in(kind, name) else source_hash(find(kind, name, key))
        found[key] = {"name": name, "options": options, "source": source}
    return found
