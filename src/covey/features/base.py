"""What a feature map is: a component that returns a fixed module."""

from typing import ClassVar

from torch import nn

from covey.components.component import Component
from covey.rng import Streams

__all__ = ["FeatureMap"]


class FeatureMap(Component):
    """A fixed map from examples to features; no client's data are in it.

    Write `build`. A function that returns an `nn.Module`, such as a frozen backbone, will
    do as well; it takes no arguments or `input_shape`, beside its options.
    """

    kind: ClassVar[str] = "features"

    def build(self, input_shape: tuple[int, ...], streams: Streams) -> nn.Module:
        """Return a module that maps a float batch `(n, *input_shape)` to `(n, d)` float32.

        Args:
            input_shape: of one example, without the batch.
            streams: where all that is drawn comes from: the same for all models of a run.
        """
        raise NotImplementedError
