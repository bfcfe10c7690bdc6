"""What a user's function makes: a module, or an error that names the function."""

import sys
from collections.abc import Callable
from traceback import walk_tb

from torch import nn

from covey.base.errors import CoveyError, ModelError

NOT_A_USERS = {"covey", "jaxtyping", "numpy", "pydantic", "torch"}
NOT_A_USERS |= sys.stdlib_module_names


def made_module(what: str, make: Callable[[], object], remedy: str) -> nn.Module:
    """Return the module that a user's function makes.

    Args:
        what: the function, for messages, such as "model function resnet".
        make: calls it.
        remedy: what to do where it raises.

    Raises:
        ModelError: it raised, or returned something else.
    """
    try:
        module = make()
    except CoveyError:
        raise
    except Exception as error:
        raise ModelError(
            f"Your {what} raised {type(error).__name__}: {error}{raised_at(error)}. {remedy}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"Your {what} must return an nn.Module, but it returned a "
            f"{type(module).__name__}. Return the module itself."
        )
    return module


def raised_at(error: BaseException) -> str:
    """Return where in a user's own code an error was raised: " in FILE, line N", or ""."""
    found = ""
    for frame, line in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in NOT_A_USERS:
            found = f" in {frame.f_code.co_filename}, line {line}"
    return found
