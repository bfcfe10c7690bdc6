"""The handwritten digits inside scikit-learn: for trying things out, without any file."""

from __future__ import annotations

from pathlib import Path

from covey import data
from covey.data.base import DataSet

__all__ = ["Digits"]


class Digits(DataSet):
    """1,797 images of 8 x 8 pixels; 0..16 is scaled to 0..255."""

    def read(self, folder: Path) -> data.Source:  # noqa: ARG002
        """Return the images."""
        import numpy as np
        import torch
        from sklearn.datasets import load_digits

        pixels, classes = load_digits(return_X_y=True)
        scaled = np.rint(pixels * (255 / 16)).astype(np.uint8)
        images = torch.from_numpy(scaled).view(-1, 1, 8, 8)
        labels = torch.from_numpy(classes.astype(np.int64))
        examples = data.Examples(images, labels)
        return data.Source("digits", examples, None, num_classes=10)
