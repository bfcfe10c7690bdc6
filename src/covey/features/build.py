"""Build a feature map by name."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn

from covey.components.component import Component
from covey.components.own_source import source_hash
from covey.components.registry import create, find, is_built_in
from covey.errors import ConfigError
from covey.features.base import FeatureMap
from covey.features.frozen import FrozenFeatures
from covey.module_factories import made_module
from covey.rng import Streams

__all__ = ["build_features"]

REMEDY = (
    "It is called without arguments or with input_shape, beside options, and returns an "
    "nn.Module: correct it."
)
REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def build_features(
    name: str,
    input_shape: tuple[int, ...],
    seed: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    key: str = "features",
) -> FrozenFeatures:
    """Return the features that all models of a run share.

    Args:
        name: a feature map's, or `package.module:factory`.
        input_shape: of one example, without the batch.
        seed: the run's; whatever is drawn depends on nothing else.
        options: of the feature map.
        key: the setting, for messages.

    Raises:
        ConfigError: there is none of this name, or it has no such options.
        ModelError: it makes no module that maps examples to rows.
    """
    found = find("features", name, key)
    if isinstance(found, nn.Module):
        raise ConfigError(
            f"{key} = {name!r} must name a FeatureMap or a function that returns an "
            f"nn.Module, found a module itself, a {type(found).__name__}. Name a function "
            f"that returns it."
        )
    streams = Streams(seed).at("features")
    if inspect.isclass(found) and issubclass(found, Component):
        made: FeatureMap = create("features", name, options, key, FeatureMap)
        module = made.build(input_shape, streams)
    else:
        with streams.lent_to_torch():
            module = _called(name, partial(found, **options), input_shape)
    source = "" if is_built_in("features", name) else source_hash(found)
    return FrozenFeatures(module, name, options, source).sized(input_shape)


def _called(
    name: str, factory: Callable[..., object], input_shape: tuple[int, ...]
) -> nn.Module:
    """Return the module that a user's function makes."""

    def make() -> object:
        signature = inspect.signature(factory)
        parameters = signature.parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind not in REST]
        takes_shape = needed or "input_shape" in signature.parameters
        return factory(input_shape) if takes_shape else factory()

    return made_module(f"feature map {name}", make, REMEDY)
