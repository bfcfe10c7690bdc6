"""A user's own functions, named in settings as `package.module:function`."""

import functools
import importlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from covey.errors import ConfigError, CoveyError

__all__ = ["imported", "user_function"]

P = ParamSpec("P")
R = TypeVar("R")


def imported(key: str, name: str) -> Callable[..., object]:
    """Return the function that the setting `key` names.

    Raises:
        ConfigError: it cannot be imported, or is no function.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module of somebody's may raise anything
        raise ConfigError(
            f"{key} = {name!r} must name a function as package.module:function, but "
            f"importing it failed: {error}. Check the spelling and PYTHONPATH."
        ) from error
    if not callable(found):
        raise ConfigError(
            f"{key} = {name!r} must name a function, found a {type(found).__name__}. "
            f"Name the function."
        )
    return found


def user_function(
    what: str, function: Callable[P, R], kind: type[CoveyError] = ConfigError
) -> Callable[P, R]:
    """Return a user's own function, whose errors are told as its own.

    Args:
        what: it is called in messages, for example "selection mine:cautious".
        function: the user's.
        kind: of the error that is raised from the function's.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except CoveyError:
            raise
        except Exception as error:
            raise kind(
                f"Your {what} raised {type(error).__name__}: {error}. Correct the "
                f"function."
            ) from error

    return call
