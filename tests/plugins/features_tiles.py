"""A feature map of a user's own: the mean of each channel over a grid of tiles."""

from pydantic import Field
from torch import nn

import covey


class Tiles(covey.FeatureMap):
    """channels * tiles**2 features."""

    tiles: int = Field(default=3, gt=0)

    def build(self, input_shape: tuple[int, ...], streams: covey.Streams) -> nn.Module:
        del input_shape, streams
        return nn.Sequential(nn.AdaptiveAvgPool2d(self.tiles), nn.Flatten())
