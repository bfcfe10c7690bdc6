"""A module that somebody made: whether it can be copied and trained, and fresh copies."""

import copy
from collections.abc import Callable
from functools import partial

from jaxtyping import Shaped
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from covey.errors import ModelError
from covey.module_factories import made_module

__all__ = ["WHOLE", "check_parameters", "check_sizes", "copied", "factory_of", "tried"]

WHOLE = (
    " Whole numbers stay whole, as ids for nn.Embedding; make them floating-point if they "
    "are features."
)


def copied(module: nn.Module) -> nn.Module:
    """Return a deep copy.

    Raises:
        ModelError: the module holds what cannot be copied.
    """
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ModelError(
            f"A model must be one that copy.deepcopy can copy, but {type(module).__name__} "
            f"raised {type(error).__name__}: {error}. Keep no results and no open files in "
            f"it."
        ) from error


def check_sizes(module: nn.Module) -> None:
    """Refuse a module whose sizes are not known yet.

    Raises:
        ModelError: naming the module.
    """
    name = type(module).__name__
    if any(is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        raise ModelError(
            f"A model must know its sizes when it is made, but {name} has lazy layers. "
            f"Give every layer its sizes."
        )


def check_parameters(module: nn.Module) -> None:
    """Refuse a module that has nothing to train.

    Raises:
        ModelError: naming the module.
    """
    if not any(each.requires_grad for each in module.parameters()):
        raise ModelError(
            f"A model must have a parameter to train, but {type(module).__name__} has "
            f"none that requires a gradient. Add one, or unfreeze it."
        )


def factory_of(model: object) -> Callable[[], nn.Module]:
    """Return what builds a fresh module out of what a program passes as its model.

    A module is copied at once, and every call copies that copy: all have its weights.

    Raises:
        ModelError: now if it is neither a function nor a module; when called if the
            function raises or returns something else.
    """
    if isinstance(model, nn.Module):
        kept = copied(model)
        return lambda: copied(kept)
    if not callable(model):
        raise ModelError(
            f"model must be a function without arguments that returns an nn.Module, or an "
            f"nn.Module, found a {type(model).__name__}. A network by name is a setting: "
            f"model.name."
        )
    name = getattr(model, "__qualname__", type(model).__name__)

    remedy = "It is called without arguments: correct it."
    return partial(made_module, f"model function {name}", model, remedy)


def tried(module: nn.Module, inputs: Shaped[Tensor, "batch ..."]) -> Tensor:
    """Return the module's outputs; any failure of foreign code becomes a ModelError."""
    try:
        outputs = module(inputs)
    except Exception as error:
        raise ModelError(
            f"A model must accept inputs {tuple(inputs.shape)}, "
            f"but {type(module).__name__} failed: {error}. "
            "Fit its layers to the data."
            + ("" if inputs.is_floating_point() else WHOLE)
        ) from error
    if not isinstance(outputs, Tensor):
        raise ModelError(
            f"A model must return one tensor, but {type(module).__name__} returned "
            f"a {type(outputs).__name__}. Return the log-probabilities alone."
        )
    return outputs
