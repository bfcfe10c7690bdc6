"""What a user's function makes: a module, or an error that names the function."""

from collections.abc import Callable

from torch import nn

from covey.errors import CoveyError, ModelError, raised_at

__all__ = ["made_module"]


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
            f"Your {what} raised {type(error).__name__}: {error}{raised_at(error)}. "
            f"{remedy}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"Your {what} must return an nn.Module, but it returned a "
            f"{type(module).__name__}. Return the module itself."
        )
    return module
