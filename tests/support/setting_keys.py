"""The keys of all settings, those of components that companions bring among them."""

from collections.abc import Iterator

from covey.base.component_names import find, known_names
from covey.settings.reference import settings


def setting_keys() -> set[str]:
    """Every `section.key`, and of what names a component also `section.key.name`."""
    keys = {setting.key for setting in settings()} | set(_of_components())
    return keys | {f"{key}.name" for key in keys}


def _of_components() -> Iterator[str]:
    for setting in settings():
        for name in known_names(setting.kind) if setting.kind else ():
            for field in getattr(find(setting.kind, name, setting.key), "model_fields", ()):
                yield f"{setting.key.removesuffix('.name')}.{field}"
