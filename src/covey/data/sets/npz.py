"""A folder with one .npz file per client."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from covey import data
from covey.data.base import ClientSource

__all__ = ["NpzFolder"]


class NpzFolder(ClientSource):
    """Clients that bring an .npz file each, in the folder that `data.dir` names."""

    reads_files: ClassVar[bool] = True

    def clients(self, request: data.PopulationRequest) -> dict[str, data.Examples]:
        """Return every file's examples; the client's name is the file's stem."""
        return data.read_clients(request.folder)

    @classmethod
    def file_of(cls, name: str, folder: Path) -> Path:
        """Return the client's file."""
        return folder / f"{name}.npz"
