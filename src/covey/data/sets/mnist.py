"""MNIST: handwritten digits of 28 x 28 pixels."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from covey import data
from covey.data.base import PublishedDataSet
from covey.data.files import Publication

__all__ = ["Mnist"]


class Mnist(PublishedDataSet):
    """60,000 training and 10,000 test images of ten digits."""

    publication: ClassVar[Publication] = Publication(
        source="mnist",
        folder="mnist",
        files=MappingProxyType(
            {
                "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            }
        ),
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",  # its publisher's is gone
    )

    def read(self, folder: Path) -> data.Source:
        """Return the publisher's training and test images."""
        from covey.data.idx import read_examples

        train = read_examples(self.publication, "train", folder, num_classes=10)
        test = read_examples(self.publication, "t10k", folder, num_classes=10)
        return data.Source(self.publication.source, train, test, num_classes=10)
