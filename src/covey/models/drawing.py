"""Which layers draw random numbers inside one operation of torch, where no mask is seen."""

from torch import nn

__all__ = ["fused_dropout_layers"]


def fused_dropout_layers(module: nn.Module) -> list[nn.Module]:
    """Return attention that drops its weights, and recurrent layers that drop in between.

    A recurrent network of one layer has nothing in between, whatever its `dropout` says.
    """
    return [layer for layer in module.modules() if _drops(layer)]


def _drops(layer: nn.Module) -> bool:
    if isinstance(layer, nn.MultiheadAttention):
        return layer.dropout > 0
    return isinstance(layer, nn.RNNBase) and layer.num_layers > 1 and layer.dropout > 0
