"""FEMNIST: EMNIST's characters as LEAF cuts them, which says who wrote each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from covey import data
from covey.data.base import PublishedDataSet
from covey.data.files import Publication
from covey.data.sets.emnist import Emnist

__all__ = ["Femnist"]


class Femnist(PublishedDataSet):
    """LEAF's json files; without them EMNIST's images, whose writers nobody knows."""

    publication: ClassVar[Publication] = Publication(
        source="femnist",
        folder="femnist",
        files=MappingProxyType({"train/*.json": "", "test/*.json": ""}),
        url="https://github.com/TalwalkarLab/leaf",
        also=("femnist/data", "data"),
    )

    def read(self, folder: Path) -> data.Source:
        """Return the images with their writers."""
        from covey.data import leaf

        name = self.publication.source
        if not leaf.has_part(self.publication, "train", folder) and (
            Emnist.is_complete(folder)
        ):
            return _without_writers(Emnist().read(folder), name)
        train, writers = leaf.read_part(self.publication, "train", folder)
        test, notes = None, (f"The test files of {name} are not there.",)
        if leaf.has_part(self.publication, "test", folder):
            (test, _), notes = leaf.read_part(self.publication, "test", folder), ()
        return data.Source(name, train, test, leaf.NUM_CLASSES, notes, writers)


def _without_writers(emnist: data.Source, name: str) -> data.Source:
    note = (
        f"LEAF's files of {name} are not there: its images are those of {emnist.name}, "
        f"cut and scaled in another way, and nobody knows their writers."
    )
    return replace(emnist, name=name, notes=(*emnist.notes, note))
