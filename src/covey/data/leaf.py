"""LEAF's json files of FEMNIST: handwritten characters, and who wrote them."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from covey.data.examples import Examples
from covey.data.files import Publication, find_file, read_files
from covey.errors import DataError

__all__ = ["NUM_CLASSES", "has_part", "read_part"]

NUM_CLASSES = 62
SIDE = 28

Part = Literal["train", "test"]

Written = tuple[UInt8[np.ndarray, "n 784"], Int64[np.ndarray, " n"]]


def has_part(publication: Publication, part: Part, folder: Path) -> bool:
    """Say whether there are files of that part."""
    return find_file(publication, f"{part}/*.json", folder) is not None


def read_part(
    publication: Publication, part: Part, folder: Path
) -> tuple[Examples, Int[Tensor, " images"]]:
    """Return all images of the part's files, and the number of the writer of each.

    LEAF's background is 1; it is turned to 0, as in MNIST, and ink to 255.

    Raises:
        DataError: there is no file, or one is malformed.
    """
    numbers: dict[str, int] = {}
    pixels, labels, writers = [], [], []
    for content, path in read_files(publication, f"{part}/*.json", folder):
        for writer, (images, classes) in _written(content, path).items():
            number = numbers.setdefault(writer, len(numbers))
            pixels.append(images)
            labels.append(classes)
            writers.append(np.full(len(classes), number))
    inputs = torch.from_numpy(np.concatenate(pixels)).view(-1, 1, SIDE, SIDE)
    examples = Examples(inputs, torch.from_numpy(np.concatenate(labels)))
    return examples, torch.from_numpy(np.concatenate(writers))


def _written(content: bytes, path: Path) -> dict[str, Written]:
    """Return what each writer of one file wrote, in the file's order."""
    try:
        return _checked(json.loads(content, object_hook=_compact))
    except Exception as error:  # a malformed file can raise anything
        raise DataError(
            f"{path} must be LEAF's json of FEMNIST, with users, num_samples and "
            f"user_data, 784 numbers in [0, 1] per image and labels below "
            f"{NUM_CLASSES}, but: {error!r}. Make it again with LEAF."
        ) from error


def _checked(part: dict[str, Any]) -> dict[str, Written]:
    written = {user: part["user_data"][user] for user in part["users"]}
    found = [len(labels) for _, labels in written.values()]
    if not found or found != part["num_samples"]:
        raise ValueError("num_samples is not how many images the users have")
    return written


def _compact(found: dict[str, Any]) -> dict[str, Any] | Written:
    """Turn a writer's lists into arrays as soon as they are read: they fill the memory."""
    if found.keys() != {"x", "y"}:
        return found
    labels = np.array(found["y"])
    pixels = np.array(found["x"], dtype=np.float32).reshape(len(labels), SIDE * SIDE)
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("a pixel is outside [0, 1]")
    if not np.isin(labels, np.arange(NUM_CLASSES)).all():
        raise ValueError("a label is no class")
    return np.rint((1 - pixels) * 255).astype(np.uint8), labels.astype(np.int64)
