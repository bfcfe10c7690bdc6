"""Settings whose capability is not built yet: refused, with that as the reason."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["LATER_VALUES", "later_problems"]

LATER_VALUES = {
    "engine.name": ("ray",),
}


def later_problems(settings: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Yield key, value and refusal of the settings that wait for their capability."""
    flat = dict(settings)
    for section, keys in settings.items():
        if isinstance(keys, Mapping):
            flat |= {f"{section}.{key}": value for key, value in keys.items()}
    for key, value in flat.items():
        if value in LATER_VALUES.get(key, ()):
            yield (
                key,
                value,
                f"{key} = {value!r} is planned, and this version of covey does not have "
                f"it yet. Leave it at its default or choose another.",
            )
