"""The public data sets, read from their publishers' files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from covey.data import celeba, cifar, leaf
from covey.data.examples import Examples
from covey.data.files import find_file, read_file
from covey.data.idx import parse_idx
from covey.errors import ConfigError, DataError

__all__ = ["SOURCES", "Source", "read_source"]

EMNIST_TRAIN = "emnist-byclass-train-images-idx3-ubyte.gz"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A data set as its publisher made it.

    Attributes:
        test: the publisher's test file; None where there is only one file.
        num_classes: or, where an image has several labels, how many.
        notes: what a reader of results must know: parts that were not there.
        writers: a number for whoever wrote each training image; None if unknown.
    """

    name: str
    train: Examples
    test: Examples | None
    num_classes: int
    notes: tuple[str, ...] = ()
    writers: Int[Tensor, " images"] | None = None


def read_source(name: str, folder: Path) -> Source:
    """Read a data set by its `data.name` from the data folder.

    Raises:
        ConfigError: there is no such data set.
        DataError: a file is missing or malformed.
        ChecksumError: a file is not the published one.
    """
    if name not in SOURCES:
        raise ConfigError(
            f"data.name must be one of {', '.join(SOURCES)}, found {name!r}."
        )
    return SOURCES[name](folder)


def _digits(_folder: Path) -> Source:
    """8x8 digits inside scikit-learn; 0..16 is scaled to 0..255."""
    from sklearn.datasets import load_digits  # slow to import: a second, for this only

    pixels, classes = load_digits(return_X_y=True)
    scaled = np.rint(pixels * (255 / 16)).astype(np.uint8)
    images = torch.from_numpy(scaled).view(-1, 1, 8, 8)
    labels = torch.from_numpy(classes.astype(np.int64))
    return Source("digits", Examples(images, labels), None, num_classes=10)


def _mnist(folder: Path) -> Source:
    return _idx_source("mnist", folder)


def _fashion_mnist(folder: Path) -> Source:
    return _idx_source("fashion-mnist", folder)


def _idx_source(name: str, folder: Path) -> Source:
    train = _idx_examples(name, "train", folder, num_classes=10)
    test = _idx_examples(name, "t10k", folder, num_classes=10)
    return Source(name, train, test, num_classes=10)


def _emnist(folder: Path) -> Source:
    """62 classes: digits, upper case, lower case."""
    test = _emnist_examples("test", folder)
    if find_file("emnist", EMNIST_TRAIN, folder):
        return Source("emnist", _emnist_examples("train", folder), test, 62)
    note = (
        f"The training file of emnist is not there: all {len(test):,} images come from "
        f"the test file."
    )
    return Source("emnist", test, None, 62, (note,))


def _emnist_examples(part: str, folder: Path) -> Examples:
    examples = _idx_examples("emnist", f"emnist-byclass-{part}", folder, num_classes=62)
    upright = examples.inputs.transpose(-1, -2).contiguous()  # stored column by column
    return Examples(upright, examples.labels)


def _idx_examples(source: str, part: str, folder: Path, num_classes: int) -> Examples:
    content, path = read_file(source, f"{part}-images-idx3-ubyte.gz", folder)
    images = parse_idx(content, path, dimensions=3).unsqueeze(1)
    content, path = read_file(source, f"{part}-labels-idx1-ubyte.gz", folder)
    labels = parse_idx(content, path, dimensions=1).long()
    if len(labels) != len(images):
        raise DataError(
            f"{path} must hold a label for each of {len(images):,} images, found "
            f"{len(labels):,}. Get both files again."
        )
    if (labels >= num_classes).any():
        raise DataError(
            f"{path} must hold labels below {num_classes}, found {int(labels.max())}. "
            f"Get the file again."
        )
    return Examples(images, labels)


def _femnist(folder: Path) -> Source:
    """EMNIST's characters as LEAF cuts them, which says who wrote each."""
    if not leaf.has_part("train", folder) and find_file("emnist", EMNIST_TRAIN, folder):
        emnist = _emnist(folder)
        note = (
            "LEAF's files of femnist are not there: its images are those of emnist, cut "
            "and scaled in another way, and nobody knows their writers."
        )
        return replace(emnist, name="femnist", notes=(*emnist.notes, note))
    train, writers = leaf.read_part("train", folder)
    test, notes = None, ("The test files of femnist are not there.",)
    if leaf.has_part("test", folder):
        (test, _), notes = leaf.read_part("test", folder), ()
    return Source("femnist", train, test, leaf.NUM_CLASSES, notes, writers)


def _celeba(folder: Path) -> Source:
    train, num_train = celeba.read_part("train", folder)
    test, num_test = celeba.read_part("test", folder)
    notes = tuple(
        f"Of the {found:,} {part} images of celeba the first {len(used):,} are used."
        for part, used, found in (
            ("training", train, num_train),
            ("test", test, num_test),
        )
        if len(used) < found
    )
    return Source("celeba", train, test, celeba.NUM_LABELS, notes)


def _cifar10(folder: Path) -> Source:
    names = [f"data_batch_{number}" for number in range(1, 6)]
    missing = [name for name in names if find_file("cifar10", name, folder) is None]
    # With no batch at all, reading the first one says what is missing and where.
    present = [name for name in names if name not in missing] or names[:1]
    batches = [_cifar_batch(name, folder) for name in present]
    train = Examples(
        torch.cat([batch.inputs for batch in batches]),
        torch.cat([batch.labels for batch in batches]),
    )
    note = f"{', '.join(missing)} of cifar10 are not there: {len(train):,} training images."
    test = _cifar_batch("test_batch", folder)
    notes = (note,) if missing else ()
    return Source("cifar10", train, test, cifar.NUM_CLASSES, notes)


def _cifar_batch(name: str, folder: Path) -> Examples:
    return cifar.parse_batch(*read_file("cifar10", name, folder))


SOURCES: Mapping[str, Callable[[Path], Source]] = MappingProxyType(
    {
        "digits": _digits,
        "mnist": _mnist,
        "fashion-mnist": _fashion_mnist,
        "emnist": _emnist,
        "cifar10": _cifar10,
        "femnist": _femnist,
        "celeba": _celeba,
    }
)
"""How to read each data set, by `data.name`."""
