"""CIFAR-10: small colour photographs of ten classes."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from covey import data
from covey.data.base import PublishedDataSet
from covey.data.files import Publication, find_file, read_file

__all__ = ["Cifar10"]


class Cifar10(PublishedDataSet):
    """Up to 50,000 training images, from the batches that are there, and 10,000 to test."""

    publication: ClassVar[Publication] = Publication(
        source="cifar10",
        folder="cifar-10-batches-py",
        files=MappingProxyType(
            {
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            }
        ),
        url="https://www.cs.toronto.edu/~kriz/cifar.html",
    )

    def read(self, folder: Path) -> data.Source:
        """Return the images of the batches that are there, and say which are not."""
        from covey.data import cifar

        def batch(name: str) -> data.Examples:
            return cifar.parse_batch(*read_file(self.publication, name, folder))

        name = self.publication.source
        names = [f"data_batch_{number}" for number in range(1, 6)]
        missing = [each for each in names if not self._has(each, folder)]
        # With no batch at all, reading the first one says what is missing and where.
        present = [each for each in names if each not in missing] or names[:1]
        train = data.Examples.joined([batch(each) for each in present])
        note = (
            f"{', '.join(missing)} of {name} are not there: {len(train):,} training "
            f"images."
        )
        notes = (note,) if missing else ()
        return data.Source(name, train, batch("test_batch"), cifar.NUM_CLASSES, notes)

    def _has(self, name: str, folder: Path) -> bool:
        return find_file(self.publication, name, folder) is not None
