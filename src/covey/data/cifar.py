"""The python batches of CIFAR-10: pickles, read without running anything in them."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.data.examples import Examples
from covey.errors import DataError

__all__ = ["NUM_CLASSES", "parse_batch"]

NUM_CLASSES = 10
IMAGE_SHAPE = (3, 32, 32)


def parse_batch(content: bytes, path: Path) -> Examples:
    """Return the images and labels of one batch.

    Args:
        content: the file's bytes.
        path: names the file in errors.

    Raises:
        DataError: the pickle asks for anything that a batch does not need, or does not
            hold a batch.
    """
    try:
        batch = _BatchUnpickler(content, path).load()
        return _examples(batch[b"data"].pixels(), batch[b"labels"])
    except DataError:
        raise
    except Exception as error:  # a malformed pickle can raise anything
        raise DataError(
            f"{path} must be a CIFAR-10 python batch with 'data' and 'labels', but "
            f"reading it failed: {error!r}. Get the file again."
        ) from error


def _examples(pixels: np.ndarray, classes: list[int]) -> Examples:
    images = torch.from_numpy(pixels).view(-1, *IMAGE_SHAPE)
    labels = torch.tensor(classes)
    if len(labels) != len(images) or not set(classes) <= set(range(NUM_CLASSES)):
        raise ValueError("there must be one label in 0..9 for every image")
    return Examples(images, labels)


class _Dtype:
    """Stands for `numpy.dtype` in the pickle."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment: single bytes have none."""


class _Array:
    """Stands for `numpy.ndarray` in the pickle, so that no numpy code sees its state."""

    state: tuple[Any, ...]

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def pixels(self) -> np.ndarray:
        _version, shape, dtype, is_fortran, content = self.state
        if dtype.code not in (b"u1", "u1") or is_fortran:
            raise ValueError("'data' must hold unsigned bytes, row by row")
        return np.frombuffer(content, np.uint8).reshape(shape).copy()


STANDS_FOR = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}


class _BatchUnpickler(pickle.Unpickler):
    def __init__(self, content: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.path = path

    def find_class(self, module: str, name: str, /) -> type:
        if (module, name) not in STANDS_FOR:
            raise DataError(
                f"{self.path} must be a CIFAR-10 python batch, but this pickle asks for "
                f"{module}.{name}, which no batch needs. It was not run: do not open "
                f"this file with pickle; get it again."
            )
        return STANDS_FOR[module, name]
