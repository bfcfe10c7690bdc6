"""Features that clients hold already, such as a foundation model's embeddings."""

from torch import nn

from covey.features.base import FeatureMap
from covey.rng import Streams

__all__ = ["AsTheyAre"]


class AsTheyAre(FeatureMap):
    """The numbers of every example, in one row: nothing is drawn, nothing normalised."""

    def build(
        self,
        input_shape: tuple[int, ...],  # noqa: ARG002
        streams: Streams,  # noqa: ARG002
    ) -> nn.Module:
        """Return the flattening."""
        return nn.Flatten()
