"""Where data files lie, and whether they are there and whole."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from covey.data.checksums import PUBLISHED, verify
from covey.errors import DataError

__all__ = [
    "PUBLICATIONS",
    "DataFile",
    "Publication",
    "check_data",
    "data_folder",
    "find_file",
    "read_file",
    "read_files",
]


@dataclass(frozen=True, slots=True)
class Publication:
    """How a data set's publisher ships it.

    Attributes:
        folder: its usual folder inside the data folder.
        files: the names of its files; `*.json` in a name stands for one file or more.
        url: where to get them; where it ends with a slash, the name of a file that is
            put behind it is that file's own address.
        also: other folders inside the data folder where its own tools leave the files.
    """

    folder: str
    files: tuple[str, ...]
    url: str
    also: tuple[str, ...] = ()


_MNIST_FILES = tuple(PUBLISHED["mnist"])
PUBLICATIONS: Mapping[str, Publication] = MappingProxyType(
    {
        "mnist": Publication(
            "mnist",
            _MNIST_FILES,
            "https://ossci-datasets.s3.amazonaws.com/mnist/",  # its publisher's is gone
        ),
        "fashion-mnist": Publication(
            "fashion-mnist",
            _MNIST_FILES,
            "https://github.com/zalandoresearch/fashion-mnist/tree/master/data/fashion",
        ),
        "emnist": Publication(
            "emnist",
            tuple(
                f"emnist-byclass-{part}-{kind}-ubyte.gz"
                for part in ("train", "test")
                for kind in ("images-idx3", "labels-idx1")
            ),
            "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        ),
        "cifar10": Publication(
            "cifar-10-batches-py",
            tuple(PUBLISHED["cifar10"]),
            "https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        "femnist": Publication(
            "femnist",
            ("train/*.json", "test/*.json"),
            "https://github.com/TalwalkarLab/leaf",
            also=("femnist/data", "data"),
        ),
        "celeba": Publication(
            "celeba",
            (
                "list_attr_celeba.txt",
                "list_eval_partition.txt",
                "img_align_celeba/*.jpg",
            ),
            "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        ),
    }
)
"""The data sets that are read from files, by source name."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One row of `covey data check`.

    Attributes:
        state: "unchecked" is there, but has no published checksum.
        url: where to get the file.
        md5: the file's published checksum, whoever it comes from; empty: none is known.
    """

    source: str
    name: str
    state: Literal["ok", "missing", "corrupt", "unchecked"]
    url: str
    md5: str = ""


def data_folder(configured: str) -> Path:
    """Return the configured folder, else $COVEY_DATA, else the user's cache."""
    chosen = configured or os.environ.get("COVEY_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "covey"


def find_file(source: str, name: str, folder: Path) -> Path | None:
    """Return a published file's path: in its own folder or directly in `folder`.

    A gzipped file may also lie there unzipped, without its `.gz`. Of several files that a
    name stands for it is any one.
    """
    return next(_found(source, name, folder), None)


def _found(source: str, name: str, folder: Path) -> Iterator[Path]:
    """Yield the files of that name in the first folder that has any."""
    for place in _places(source, folder):
        for each in dict.fromkeys((name, name.removesuffix(".gz"))):
            paths = (path for path in place.glob(each) if path.is_file())
            if first := next(paths, None):
                yield first
                yield from paths
                return


def read_file(source: str, name: str, folder: Path) -> tuple[bytes, Path]:
    """Return a published file's bytes, and where they were found.

    Raises:
        DataError: the file is not there or cannot be read.
        ChecksumError: it is not the published file.
    """
    path = find_file(source, name, folder)
    if path is None:
        raise _missing(source, name, folder)
    return _content(source, path), path


def read_files(source: str, name: str, folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Yield all files that a name stands for, by their own names, as `read_file` does."""
    paths = sorted(_found(source, name, folder))
    if not paths:
        raise _missing(source, name, folder)
    for path in paths:
        yield _content(source, path), path


def _places(source: str, folder: Path) -> list[Path]:
    publication = PUBLICATIONS[source]
    return [folder / each for each in (publication.folder, *publication.also, "")]


def _missing(source: str, name: str, folder: Path) -> DataError:
    places = " nor in ".join(str(place) for place in _places(source, folder))
    md5 = PUBLISHED.get(source, {}).get(name)
    known = f" (MD5 {md5})" if md5 else ""
    return DataError(
        f"{source} needs the file {name}{known}, which is neither in {places}. Get it "
        f"from {_address(source, name)}{', or wherever it has that MD5' if md5 else ''}, "
        f"and name the folder in data.dir or COVEY_DATA."
    )


def _address(source: str, name: str) -> str:
    """Return the file's own address, or that of a page which leads to it."""
    url = PUBLICATIONS[source].url
    return f"{url}{name}" if url.endswith("/") else url


def _content(source: str, path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} must be readable: {error}. Check its rights."
        ) from error
    verify(source, path, content)
    return content


def check_data(folder: Path) -> list[DataFile]:
    """Look for every file of every known data set, and check its sum."""
    return [
        DataFile(
            source,
            name,
            _state(source, name, folder),
            _address(source, name),
            PUBLISHED.get(source, {}).get(name, ""),
        )
        for source, publication in PUBLICATIONS.items()
        for name in publication.files
    ]


def _state(
    source: str, name: str, folder: Path
) -> Literal["ok", "missing", "corrupt", "unchecked"]:
    if find_file(source, name, folder) is None:
        return "missing"
    try:
        _, path = read_file(source, name, folder)
    except DataError:
        return "corrupt"
    return "ok" if path.name in PUBLISHED.get(source, {}) else "unchecked"
