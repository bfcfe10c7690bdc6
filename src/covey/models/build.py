"""Build a model by name."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn

from covey.components.built_ins import BUILT_INS
from covey.components.registry import create, find
from covey.errors import ConfigError, ModelError
from covey.models.base import ModelFactory, is_component
from covey.models.networks import ImageNetwork
from covey.module_factories import made_module
from covey.rng import Streams

__all__ = ["NETWORKS", "build_model"]

REMEDY = "Correct the function."

NETWORKS: Mapping[str, type[nn.Module]] = MappingProxyType(
    {
        name: found
        for name in BUILT_INS["model"]
        if not is_component(found := find("model", name, "model.name"))
    }
)
"""Every shipped network by its name in a configuration."""


def build_model(  # noqa: PLR0913, PLR0917 - a name has options
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    streams: Streams,
    task: str = "multiclass",
    options: Mapping[str, Any] = MappingProxyType({}),
) -> nn.Module:
    """Return a freshly initialised network; the draws come from `streams` alone.

    Shipped networks end in log-probabilities for the task "multiclass" only; for others
    the last layer, log-softmax, is left off.

    Args:
        name: a network's, or `package.module:factory`. A factory that takes two
            arguments beside its options gets `input_shape` and `num_classes`; any other
            is called with none.
        input_shape: the shape of one example, without the batch.
        num_classes: how many outputs the network has: the classes, several labels' number,
            or 1 for a number.
        streams: where the initial parameters come from.
        task: what the network is for, as `model.task` has it.
        options: of the network: fields of a `ModelFactory`, or keyword arguments.
    """
    found, sizes = _imported(name), (input_shape, num_classes)
    if is_component(found):
        made = create("model", name, options, "model.name", ModelFactory)
        with streams.lent_to_torch():
            build = partial(made.build_for, *sizes, streams.seed)
            return made_module(f"model function {name}", build, REMEDY)
    if inspect.isclass(found) and issubclass(found, ImageNetwork):
        _check_image(name, found, input_shape)
    with streams.lent_to_torch():
        module = _called(name, found, sizes, options)
    if name in NETWORKS and task != "multiclass":
        _leave_off_log_softmax(module)
    return module


def _leave_off_log_softmax(module: nn.Module) -> None:
    if isinstance(module, nn.Sequential) and isinstance(module[-1], nn.LogSoftmax):
        del module[-1]


def _check_image(
    name: str, network: type[ImageNetwork], input_shape: tuple[int, ...]
) -> None:
    """Refuse inputs that an image network cannot pool."""
    side = network.smallest_side
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        raise ModelError(
            f"{name} needs images (channels, height, width) of at least {side}x{side} "
            f"pixels, but the inputs are {input_shape}. "
            f"Use larger images or another model, for example mlp."
        )


def _imported(name: str) -> Callable[..., object]:
    """Return what a name stands for."""
    try:
        return find("model", name, "model.name")
    except ConfigError as error:
        raise ModelError(str(error)) from error


def _called(
    name: str,
    factory: Callable[..., object],
    sizes: tuple[tuple[int, ...], int],
    options: Mapping[str, Any],
) -> nn.Module:
    """Return the module that the factory makes."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none
        signature = inspect.Signature()
    arguments = sizes if _takes_sizes(signature, options) else ()
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        raise ModelError(
            f"The factory of model {name!r} must take no arguments or "
            f"(input_shape, num_classes), beside its options {dict(options)}, but its "
            f"signature is {signature}. Give its other arguments defaults."
        ) from error
    make = partial(factory, *arguments, **options)
    return made_module(f"model function {name}", make, REMEDY)


def _takes_sizes(signature: inspect.Signature, options: Mapping[str, Any]) -> bool:
    """Say whether two arguments are left to be given, by their number or as the needed."""
    left = [each for name, each in signature.parameters.items() if name not in options]
    needed = [each for each in left if each.default is each.empty]
    return 2 in (len(left), len(needed))
