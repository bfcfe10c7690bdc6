"""Whether a model fits its data, and what is in it."""

import torch
from torch import nn

from covey.errors import ModelError
from covey.models.drawing import fused_dropout_layers
from covey.models.instance import check_parameters, check_sizes, copied, tried
from covey.types import Params

__all__ = ["check_model", "dropout_layers", "initial_params", "refuse_batch_norm"]

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
