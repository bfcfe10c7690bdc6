"""A data set of a user's own, which covey deals to clients that it simulates."""

from pathlib import Path

import numpy as np
import torch
from pydantic import Field

import covey


class Stripes(covey.DataSet):
    """Images of 8 x 8 pixels, with one bright stripe whose place is the class."""

    images: int = Field(default=1_000, gt=0)
    contrast: int = Field(default=80, gt=0, le=155)

    def read(self, folder: Path) -> covey.Source:
        generator = np.random.default_rng(0)
        labels = generator.integers(0, 8, self.images)
        pixels = generator.integers(0, 100, (self.images, 1, 8, 8)).astype(np.uint8)
        pixels[np.arange(self.images), 0, labels] += np.uint8(self.contrast)
        train = covey.Examples(torch.from_numpy(pixels), torch.from_numpy(labels))
        return covey.Source("stripes", train, test=None, num_classes=8)
