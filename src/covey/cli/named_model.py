"""How a command names a model: its factory, its weights, the function that trains its like."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from covey.base.component_names import named_object
from covey.base.errors import ConfigError, DataError, ModelError
from covey.base.files import check_regular
from covey.models.build import factory_of

PICKLED = (".pt", ".pth", ".bin")


def named_model(name: str, weights: Path | None = None) -> nn.Module:
    """Return the model that `package.module:factory` makes, with these weights.

    Raises:
        CoveyError: there is no such factory, or the weights are not of its model.
    """
    module = factory_of(named_function("--model", name))()
    if weights is None:
        return module
    try:
        module.load_state_dict(_state(weights))
    except RuntimeError as error:
        raise ModelError(
            f"{weights} must hold the state dict of the model that {name} makes, found "
            f"{' '.join(str(error).split())}: name the factory that it was saved from."
        ) from error
    return module


def named_function(key: str, name: str) -> Callable[..., Any]:
    """Return what `package.module:name` names.

    Raises:
        ConfigError: there is no such thing, or it cannot be called.
    """
    if ":" not in name:
        raise ConfigError(
            f"{key} must be package.module:function, found {name!r}: name a function of a module "
            f"in this folder or in PYTHONPATH."
        )
    return named_object(key, name, name)


def _state(path: Path) -> dict[str, Tensor]:
    """Read a state dict; nothing in the file is run."""
    try:
        check_regular(path)
        if path.suffix in PICKLED:
            state = torch.load(path, map_location="cpu", weights_only=True)
        else:
            state = safetensors.torch.load_file(path)
    except Exception as error:  # a malformed file can raise anything
        raise DataError(
            f"{path} must be a state dict of tensors alone, in safetensors, or by torch.save in a "
            f"file {', '.join(PICKLED)}, found {error}: save model.state_dict()."
        ) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(value, Tensor) for value in state.values()
    ):
        raise DataError(
            f"{path} must be a state dict, found a {type(state).__name__}: save model.state_dict()."
        )
    return dict(state)
