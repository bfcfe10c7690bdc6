"""What settings mean: which of them can change a result."""

from collections.abc import Mapping
from typing import Any, cast

from covey.config.settings import Config

__all__ = ["flat", "heeded", "that_matter", "unused"]

CHANGES_NOTHING = (
    "engine.workers",
    "checkpoints.",
    "data.dir",
    "merge.deniability_threshold",  # judges requests, not training
    "merge.options.deniability_threshold",
)
UNUSED: Mapping[str, tuple[str, ...]] = {
    "fedavg": ("method.",),
    "isolated": (
        "method.initialisation",
        "method.select",
        "method.risk_",
        "method.pooling",
        "method.hysteresis",
        "method.smoothing",
        "method.target_share",
    ),
    "local": ("method.",),
    "ifca": (
        "method.selection",
        "method.risk_scale",
        "method.risk_weight",
        "method.target_share",
    ),
}
"""Settings that a method does not look at."""


def that_matter(config: Config) -> dict[str, Any]:
    """Return the settings that can change a result, as `section.key` to value.

    Only those that are not the defaults, so that a run stays what it was when a later
    version knows more settings.
    """
    found = flat(config.model_dump(mode="json", exclude_defaults=True))
    return {k: v for k, v in found.items() if not k.startswith(CHANGES_NOTHING)}


def unused(method: str, selection: str) -> tuple[str, ...]:
    """Return how the settings begin that this method does not look at."""
    keeps = method == "ifca-mir" and selection in ("priced", "rebalanced")
    return (*UNUSED.get(method, ()), *(() if keeps else ("method.target_share",)))


def heeded(settings: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Leave out of `section.key` settings what the config's method does not look at."""
    ignored = unused(config.method.name, config.method.selection)
    used = {key: v for key, v in settings.items() if not key.startswith(ignored)}
    return used | {"method.name": config.method.name}


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as `section.key` to value."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            inner = flat(cast("Mapping[str, Any]", value))
            found |= {f"{key}.{k}": v for k, v in inner.items()}
        else:
            found[key] = value
    return found
