"""Settings whose capability is not built yet: refused, with that as the reason."""

from collections.abc import Mapping
from typing import Any

from covey.errors import ConfigError

__all__ = ["LATER_KEYS", "LATER_VALUES", "refuse_later"]

LATER_KEYS = {
    "merge.max_update_norm": "norm-bounded merges",
}

LATER_VALUES = {
    "merge.name": ("trimmed-mean", "median", "krum", "norm-bounded"),
    "engine.name": ("ray",),
}


def refuse_later(settings: Mapping[str, Any]) -> None:
    """Refuse the settings that wait for their capability.

    Raises:
        ConfigError: naming the setting and what it waits for.
    """
    flat = dict(settings)
    for section, keys in settings.items():
        if isinstance(keys, Mapping):
            flat |= {f"{section}.{key}": value for key, value in keys.items()}
    for key, value in flat.items():
        if key in LATER_KEYS:
            raise ConfigError(
                f"{key} belongs to {LATER_KEYS[key]}, which this version of covey does "
                f"not have yet. Remove it."
            )
        if value in LATER_VALUES.get(key, ()):
            raise ConfigError(
                f"{key} = {value!r} is planned, and this version of covey does not have "
                f"it yet. Leave it at its default or choose another."
            )
