"""Where data files lie, and whether they are there and whole."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from covey.base.errors import ChecksumError, DataError
from covey.base.files import MEBIBYTE, read_bounded
from covey.components.registry import find, known_names


def verify(source: str, path: Path, content: bytes, md5: str) -> None:
    """Check a file's bytes against the published sum; an empty one is not checked.

    Guards against broken downloads, not against an attacker: MD5 is forgeable.

    Raises:
        ChecksumError: the bytes are not the published ones.
    """
    if not md5:
        return
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise ChecksumError(
            f"{path} must be {source}'s published file with MD5 {md5}, found MD5 "
            f"{found}. Delete it and get it again."
        )


LARGEST = 8_192 * MEBIBYTE
"""Bytes of one published file; CelebA's images, the largest, have 1.4 GB."""


@dataclass(frozen=True, slots=True)
class Publication:
    """How a data set's publisher ships it.

    Attributes:
        source: the data set's name in messages.
        folder: its usual folder inside the data folder.
        files: the names of its files, with the published MD5 sum of each, or an empty
            one; `*.json` in a name stands for one file or more.
        url: where to get them; where it ends with a slash, the name of a file that is
            put behind it is that file's own address.
        also: other folders inside the data folder where its own tools leave the files.
    """

    source: str
    folder: str
    files: Mapping[str, str]
    url: str
    also: tuple[str, ...] = ()

    def md5(self, name: str) -> str:
        """Return a file's published checksum; an empty one: none is known."""
        return self.files.get(name, "")

    def address(self, name: str) -> str:
        """Return the file's own address, or that of a page which leads to it."""
        return f"{self.url}{name}" if self.url.endswith("/") else self.url

    def places(self, folder: Path) -> list[Path]:
        """Return the folders where its files may lie."""
        return [folder / each for each in (self.folder, *self.also, "")]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One row of `covey data check`.

    Attributes:
        source: which data set.
        file: its name.
        state: "unchecked" is there, but has no published checksum.
        url: where to get the file.
        md5: the file's published checksum, whoever it comes from; None: none is known.
    """

    source: str
    file: str
    state: Literal["ok", "missing", "corrupt", "unchecked"]
    url: str
    md5: str | None


def data_folder(configured: str) -> Path:
    """Return the configured folder, else $COVEY_DATA, else the user's cache."""
    chosen = configured or os.environ.get("COVEY_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "covey"


def find_file(publication: Publication, name: str, folder: Path) -> Path | None:
    """Return a published file's path: in its own folder or directly in `folder`.

    A gzipped file may also lie there unzipped, without its `.gz`. Of several files that a
    name stands for it is any one.
    """
    return next(_found(publication, name, folder), None)


def _found(publication: Publication, name: str, folder: Path) -> Iterator[Path]:
    """Yield the files of that name in the first folder that has any."""
    for place in publication.places(folder):
        for each in dict.fromkeys((name, name.removesuffix(".gz"))):
            paths = (path for path in place.glob(each) if path.is_file())
            if first := next(paths, None):
                yield first
                yield from paths
                return


def read_file(publication: Publication, name: str, folder: Path) -> tuple[bytes, Path]:
    """Return a published file's bytes, and where they were found.

    Raises:
        DataError: the file is not there or cannot be read.
        ChecksumError: it is not the published file.
    """
    path = find_file(publication, name, folder)
    if path is None:
        raise _missing(publication, name, folder)
    return _content(publication, path), path


def read_files(publication: Publication, name: str, folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Yield all files that a name stands for, by their own names, as `read_file` does."""
    paths = sorted(_found(publication, name, folder))
    if not paths:
        raise _missing(publication, name, folder)
    for path in paths:
        yield _content(publication, path), path


def _missing(publication: Publication, name: str, folder: Path) -> DataError:
    places = " nor in ".join(str(place) for place in publication.places(folder))
    md5 = publication.md5(name)
    known = f" (MD5 {md5})" if md5 else ""
    return DataError(
        f"{publication.source} needs the file {name}{known}, which is neither in {places}. "
        f"Get it from {publication.address(name)}"
        f"{', or wherever it has that MD5' if md5 else ''}, and name the folder in "
        f"data.dir or COVEY_DATA."
    )


def _content(publication: Publication, path: Path) -> bytes:
    try:
        content = read_bounded(path, LARGEST)
    except OSError as error:
        raise DataError(f"{path} must be readable: {error}. Check its rights.") from error
    verify(publication.source, path, content, publication.md5(path.name))
    return content


def publications() -> tuple[Publication, ...]:
    """Return how every data set is shipped that is read from published files."""
    kinds = (find("data", name, "data.name") for name in known_names("data"))
    found = (getattr(kind, "publication", None) for kind in kinds)
    return tuple(each for each in found if each is not None)


def check_data(folder: Path) -> list[DataFile]:
    """Look for every file of every known data set, and check its sum."""
    return [
        DataFile(
            each.source,
            name,
            _state(each, name, folder),
            each.address(name),
            each.md5(name) or None,
        )
        for each in publications()
        for name in each.files
    ]


def _state(
    publication: Publication, name: str, folder: Path
) -> Literal["ok", "missing", "corrupt", "unchecked"]:
    if find_file(publication, name, folder) is None:
        return "missing"
    try:
        _, path = read_file(publication, name, folder)
    except DataError:
        return "corrupt"
    return "ok" if publication.md5(path.name) else "unchecked"
