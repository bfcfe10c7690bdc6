"""A user's own functions, named in settings as `package.module:function`."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from covey.errors import ConfigError, CoveyError

__all__ = ["user_function"]

P = ParamSpec("P")
R = TypeVar("R")


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
