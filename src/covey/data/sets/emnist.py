"""EMNIST by class: digits, upper case and lower case."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from covey import data
from covey.data.base import PublishedDataSet
from covey.data.files import Publication, find_file

__all__ = ["Emnist"]

TRAIN = "emnist-byclass-train-images-idx3-ubyte.gz"
NUM_CLASSES = 62


class Emnist(PublishedDataSet):
    """814,255 characters of 62 classes; without its training file, the test file alone."""

    publication: ClassVar[Publication] = Publication(
        source="emnist",
        folder="emnist",
        files=MappingProxyType(
            {
                f"emnist-byclass-{part}-{kind}-ubyte.gz": ""
                for part in ("train", "test")
                for kind in ("images-idx3", "labels-idx1")
            }
        ),
        url="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    )

    @classmethod
    def is_complete(cls, folder: Path) -> bool:
        """Say whether the training file is there."""
        return find_file(cls.publication, TRAIN, folder) is not None

    def read(self, folder: Path) -> data.Source:
        """Return the images, upright."""
        name, test = self.publication.source, self._examples("test", folder)
        if self.is_complete(folder):
            train = self._examples("train", folder)
            return data.Source(name, train, test, NUM_CLASSES)
        note = (
            f"The training file of {name} is not there: all {len(test):,} images come "
            f"from the test file."
        )
        return data.Source(name, test, None, NUM_CLASSES, (note,))

    def _examples(self, part: str, folder: Path) -> data.Examples:
        from covey.data.idx import read_examples

        which = f"emnist-byclass-{part}"
        examples = read_examples(self.publication, which, folder, NUM_CLASSES)
        upright = examples.inputs.transpose(-1, -2).contiguous()  # stored by column
        return data.Examples(upright, examples.labels)
