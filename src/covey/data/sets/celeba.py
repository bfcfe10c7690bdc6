"""CelebA: faces, and which of 40 attributes each has."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from covey import data
from covey.data.base import PublishedDataSet
from covey.data.files import Publication

__all__ = ["CelebA"]


class CelebA(PublishedDataSet):
    """The first 50,000 training and 20,000 test images, their middle made 32 x 32."""

    publication: ClassVar[Publication] = Publication(
        source="celeba",
        folder="celeba",
        files=MappingProxyType(
            {
                "list_attr_celeba.txt": "",
                "list_eval_partition.txt": "",
                "img_align_celeba/*.jpg": "",
            }
        ),
        url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    )

    def read(self, folder: Path) -> data.Source:
        """Return the images, and the 40 labels of each."""
        from covey.data import celeba

        name = self.publication.source
        train, num_train = celeba.read_part(self.publication, "train", folder)
        test, num_test = celeba.read_part(self.publication, "test", folder)
        notes = tuple(
            f"Of the {found:,} {part} images of {name} the first {len(used):,} are used."
            for part, used, found in (
                ("training", train, num_train),
                ("test", test, num_test),
            )
            if len(used) < found
        )
        return data.Source(name, train, test, celeba.NUM_LABELS, notes)
