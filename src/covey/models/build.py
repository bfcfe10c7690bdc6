"""Build a model by name, check that it fits its data, and read its parameters."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import nn

from covey.errors import ModelError
from covey.models.drawing import fused_dropout_layers
from covey.models.instance import check_parameters, check_sizes, copied, tried
from covey.models.networks import (
    ConvNet,
    FemnistCnn,
    ImageNetwork,
    LeNet5,
    Linear,
    LinearMap,
    Mlp,
    MnistCnn,
    ResNetMini,
    Vgg,
)
from covey.rng import Streams
from covey.types import Params

__all__ = [
    "NETWORKS",
    "build_model",
    "check_model",
    "dropout_layers",
    "initial_params",
    "refuse_batch_norm",
]

NETWORKS: Mapping[str, type[nn.Module]] = MappingProxyType(
    {
        "convnet": ConvNet,
        "femnist-cnn": FemnistCnn,
        "lenet5": LeNet5,
        "linear": Linear,
        "linear-map": LinearMap,
        "mlp": Mlp,
        "mnist-cnn": MnistCnn,
        "resnet-mini": ResNetMini,
        "vgg": Vgg,
    }
)
"""Every shipped network by its name in a configuration."""

_DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def build_model(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    streams: Streams,
    task: str = "multiclass",
) -> nn.Module:
    """Return a freshly initialised network; the draws come from `streams` alone.

    Shipped networks end in log-probabilities for the task "multiclass" only; for others
    the last layer, log-softmax, is left off.

    Args:
        name: a key of `NETWORKS`, or `package.module:factory`. A factory that takes two
            arguments gets `input_shape` and `num_classes`; any other is called with none.
        input_shape: the shape of one example, without the batch.
        num_classes: how many outputs the network has: the classes, several labels' number,
            or 1 for a number.
        streams: where the initial parameters come from.
        task: what the network is for, as `model.task` has it.
    """
    if ":" in name:
        factory = _imported(name)
    elif name in NETWORKS:
        factory = NETWORKS[name]
        _check_image(name, NETWORKS[name], input_shape)
    else:
        raise ModelError(
            f"model must be one of {', '.join(NETWORKS)} or package.module:factory, "
            f"but it is {name!r}. Choose one of these."
        )
    with streams.lent_to_torch():
        module = _called(name, factory, (input_shape, num_classes))
    if name in NETWORKS and task != "multiclass":
        _leave_off_log_softmax(module)
    return module


def _leave_off_log_softmax(module: nn.Module) -> None:
    if isinstance(module, nn.Sequential) and isinstance(module[-1], nn.LogSoftmax):
        del module[-1]


def initial_params(module: nn.Module) -> Params:
    """Return a copy of the module's parameters and buffers."""
    return {name: value.clone() for name, value in module.state_dict().items()}


def dropout_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that drop with positive probability."""
    return [
        layer
        for layer in module.modules()
        if isinstance(layer, _DROPOUTS) and layer.p > 0
    ]


def refuse_batch_norm(module: nn.Module, why: str) -> None:
    """Refuse BatchNorm, and whatever else keeps statistics over the examples of a batch.

    Args:
        module: the model.
        why: what cannot be had with them, as the subject of a sentence.

    Raises:
        ModelError: naming the first such layer.
    """
    for layer in module.modules():
        running = isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats
        if running or isinstance(layer, _BATCH_NORMS):
            raise ModelError(
                f"{why} needs a model that sees every example alone, but the model's "
                f"{layer} mixes the examples of a batch. Use nn.GroupNorm instead."
            )


def check_model(
    module: nn.Module,
    input_shape: tuple[int, ...],
    num_classes: int,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Refuse a module that does not fit its data or draws unreproducible numbers.

    Args:
        module: the model.
        input_shape: of one example.
        num_classes: how many outputs it must have.
        dtype: of what it sees: int64 where inputs are whole numbers.

    Raises:
        ModelError: a batch of two examples does not give two rows of `num_classes`
            floating-point numbers, or the module draws from torch's global generator
            other than by dropout layers.
    """
    check_sizes(module)
    trial = copied(module).train()
    for layer in (*dropout_layers(trial), *fused_dropout_layers(trial)):
        layer.eval()
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        outputs = tried(trial, torch.zeros(2, *input_shape, dtype=dtype))
        draws = not torch.equal(before, torch.get_rng_state())
    if draws:
        raise ModelError(
            "A model must draw random numbers in dropout layers only (nn.Dropout, or the "
            "dropout of nn.MultiheadAttention, nn.LSTM, nn.GRU and nn.RNN), but "
            f"{type(module).__name__} moves torch's global generator in training. "
            "Replace what draws by nn.Dropout."
        )
    expected = (2, num_classes)
    if tuple(outputs.shape) != expected or not outputs.is_floating_point():
        raise ModelError(
            f"A model must turn inputs {(2, *input_shape)} into floating-point outputs "
            f"{expected}, but {type(module).__name__} gave {tuple(outputs.shape)} of "
            f"{outputs.dtype}. Give its last layer {num_classes} outputs."
        )
    check_parameters(module)


def _check_image(
    name: str, network: type[nn.Module], input_shape: tuple[int, ...]
) -> None:
    """Refuse inputs that an image network cannot pool."""
    if not issubclass(network, ImageNetwork):
        return
    side = network.smallest_side
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        raise ModelError(
            f"{name} needs images (channels, height, width) of at least {side}x{side} "
            f"pixels, but the inputs are {input_shape}. "
            f"Use larger images or another model, for example mlp."
        )


def _imported(name: str) -> Callable[..., object]:
    """Return the object that `package.module:factory` names."""
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # a module of somebody's may raise anything
        raise ModelError(
            f"model {name!r} must name an importable package.module:factory, "
            f"but importing it failed: {error}. Check the spelling and PYTHONPATH."
        ) from error
    if not callable(factory):
        raise ModelError(
            f"model {name!r} must name a function or class that returns an nn.Module, "
            f"but it is a {type(factory).__name__}. Name what builds the model instead."
        )
    return factory


def _called(
    name: str, factory: Callable[..., object], sizes: tuple[tuple[int, ...], int]
) -> nn.Module:
    """Return the module that the factory makes."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none
        signature = inspect.Signature()
    arguments = sizes if len(signature.parameters) == len(sizes) else ()
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ModelError(
            f"The factory of model {name!r} must take no arguments or "
            f"(input_shape, num_classes), but its signature is {signature}. "
            "Give its other arguments defaults."
        ) from error
    try:
        module = factory(*arguments)
    except Exception as error:
        raise ModelError(
            f"Your model function {name} raised {type(error).__name__}: {error}. Correct "
            f"the function."
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"The factory of model {name!r} must return an nn.Module, "
            f"but it returned a {type(module).__name__}. Return the module itself."
        )
    return module
