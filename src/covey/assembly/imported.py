"""A user's own functions, named in settings as `package.module:function`."""

import importlib
from collections.abc import Callable

from covey.errors import ConfigError

__all__ = ["imported"]


def imported(key: str, name: str) -> Callable[..., object]:
    """Return the function that the setting `key` names.

    Raises:
        ConfigError: it cannot be imported, or is no function.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{key} = {name!r} must name a function as package.module:function, but "
            f"importing it failed: {error}. Check the spelling and PYTHONPATH."
        ) from None
    if not callable(found):
        raise ConfigError(
            f"{key} = {name!r} must name a function, found a {type(found).__name__}. "
            f"Name the function."
        )
    return found
