"""The idx format of MNIST and its relatives, plain or gzipped."""

import math
import struct
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from covey.bounded_io import MEBIBYTE, gunzip
from covey.data.examples import Examples
from covey.data.files import Publication, read_file
from covey.errors import DataError

__all__ = ["parse_idx", "read_examples"]

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08
LARGEST = 2_048 * MEBIBYTE
"""Bytes unpacked: EMNIST, the largest, has 550 MB."""


def read_examples(
    publication: Publication, part: str, folder: Path, num_classes: int
) -> Examples:
    """Return the images of one channel and the labels of a part of a data set.

    Raises:
        DataError: a file is missing or malformed, or they do not fit together.
        ChecksumError: a file is not the published one.
    """
    name = f"{part}-images-idx3-ubyte.gz"
    content, path = read_file(publication, name, folder)
    images = parse_idx(content, path, dimensions=3).unsqueeze(1)
    name = f"{part}-labels-idx1-ubyte.gz"
    content, path = read_file(publication, name, folder)
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


def parse_idx(content: bytes, path: Path, dimensions: int) -> UInt8[Tensor, "..."]:
    """Return the array in an idx file of unsigned bytes.

    Args:
        content: the file's bytes, gzipped or not.
        path: names the file in errors.
        dimensions: what the header must state: 3 for images, 1 for labels.

    Raises:
        DataError: the bytes are cut short, too many or not this format.
    """
    content = _unzip(content, path)
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        raise DataError(
            f"{path} must start with {magic.hex()} (idx, unsigned bytes, {dimensions} "
            f"dimensions), found {content[:4].hex() or 'nothing'}. Get the file again."
        )
    body = 4 + 4 * dimensions
    if len(content) < body:
        raise DataError(f"{path} ends inside its header. Get the file again.")
    shape = struct.unpack(f">{dimensions}I", content[4:body])
    if len(content) - body != math.prod(shape):
        raise DataError(
            f"{path} announces {' x '.join(map(str, shape))} bytes after its header, "
            f"found {len(content) - body:,}. Get the file again."
        )
    values = np.frombuffer(content, np.uint8, offset=body).reshape(shape)
    return torch.from_numpy(values.copy())


def _unzip(content: bytes, path: Path) -> bytes:
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gunzip(content, LARGEST)
    except ValueError as error:
        raise DataError(
            f"{path} must be a whole gzip file: {error}. Get the file again."
        ) from error
