"""A user's own data: a folder with one .npz file per client."""

import math
from collections.abc import Mapping
from io import SEEK_END, BufferedReader
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from covey.bounded_io import MEBIBYTE, check_regular
from covey.data.examples import Examples
from covey.errors import DataError
from covey.types import ClientName

__all__ = ["images_of", "read_client", "read_clients"]

CHANNELS = (1, 3)
ALWAYS_ALLOWED = 1_024 * MEBIBYTE
"""Bytes that a client's file may unpack to, however small it is itself."""
EXPANSION = 20
"""How many times its own size a larger one may unpack to: images of text do 10."""


def read_clients(folder: Path) -> dict[ClientName, Examples]:
    """Read every .npz file of a folder; the client's name is the file's stem.

    A file holds `x` and `y`. `x` is uint8 images, (n, h, w), (n, h, w, c) or
    (n, c, h, w) with c = 1 or 3, or finite float features, (n, ...), or whole numbers,
    (n, ...), which stay so: ids for an embedding. `y` is n class numbers from 0, or
    several 0 or 1 per example (n, labels), or n finite floats.

    Raises:
        DataError: there is no file, or one is malformed or unlike the first.
    """
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise DataError(
            f"{folder} must hold one .npz file per client, found none. Name the folder "
            f"in data.dir."
        )
    clients = {path.stem: read_client(path) for path in paths}
    expected = next(iter(clients.values())).inputs[0]
    for path in paths:
        found = clients[path.stem].inputs[0]
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise DataError(
                f"{path} must hold examples like {paths[0].name}'s, "
                f"{tuple(expected.shape)} {expected.dtype}, found "
                f"{tuple(found.shape)} {found.dtype}. Make all clients' alike."
            )
    return clients


def read_client(path: Path) -> Examples:
    """Read one client's .npz file (`read_clients`); `inputs` and `labels` will do as well.

    Raises:
        DataError: it is malformed.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:  # numpy leaves a broken file open
            _check_expansion(file)
            arrays = np.load(file, allow_pickle=False)
            x = _either(arrays, ("x", "inputs"))
            y = _either(arrays, ("y", "labels"))
    except Exception as error:  # a malformed file can raise anything
        raise DataError(
            f"{path} must be an .npz file with plain arrays x and y: {error}. Write it "
            f"with numpy.savez(file, x=..., y=...)."
        ) from error
    labels = _labels(y, path)
    if x.ndim < 2 or len(x) != len(y) or len(y) == 0:
        raise DataError(
            f"{path}: x must hold one row per label, and at least one, found shape "
            f"{x.shape} for {len(y)} labels. Remove empty clients."
        )
    inputs = images_of(x, path) if x.dtype == np.uint8 else _features(x, path)
    return Examples(inputs, labels)


def _either(arrays: Mapping[str, np.ndarray], names: tuple[str, str]) -> np.ndarray:
    """Return the one array that has either of two names."""
    found = [name for name in names if name in arrays]
    if len(found) != 1:
        raise ValueError(f"it must hold one of {' and '.join(names)}")
    return arrays[found[0]]


def _check_expansion(file: BufferedReader) -> None:
    """Refuse an archive that says itself that it unpacks to far more than its size.

    Raises:
        ValueError: it does, or an array's header announces more than its bytes.
    """
    with ZipFile(file) as archive:
        size = file.seek(0, SEEK_END)
        allowed = max(ALWAYS_ALLOWED, EXPANSION * size)
        if sum(each.file_size for each in archive.infolist()) > allowed:
            raise ValueError(
                f"it unpacks to more than {EXPANSION} times its {size:,} bytes"
            )
        for each in archive.infolist():
            with archive.open(each) as member:
                _check_header(member, each.file_size)
    file.seek(0)


def _check_header(member: Any, size: int) -> None:  # noqa: ANN401 - an open file of bytes
    """Refuse an array whose header announces more numbers than there are bytes."""
    version = np.lib.format.read_magic(member)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(member)
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"an array of shape {shape} has more numbers than bytes")


def _labels(y: np.ndarray, path: Path) -> Shaped[Tensor, "examples *label"]:
    if np.issubdtype(y.dtype, np.floating) and y.ndim == 1 and np.isfinite(y).all():
        return torch.from_numpy(y.astype(np.float32))
    whole = np.issubdtype(y.dtype, np.integer)
    if (
        not whole
        or y.ndim not in (1, 2)
        or (y < 0).any()
        or (y.ndim == 2 and (y > 1).any())
    ):
        raise DataError(
            f"{path}: y must be a list of class numbers from 0, or of numbers 0 or 1 per "
            f"example, or of finite floats, found {y.dtype} of shape {y.shape}. Number the "
            f"classes 0, 1, 2 ..."
        )
    return torch.from_numpy(y.astype(np.int64))


def images_of(
    x: np.ndarray, whose: object
) -> Shaped[Tensor, "images channels height width"]:
    """Return uint8 images with their channels second.

    Raises:
        DataError: it cannot be told where the channels are, or whether there are any.
    """
    images = torch.from_numpy(x)
    if x.ndim == 3:
        return images.unsqueeze(1)
    first, last = (x.ndim == 4 and x.shape[axis] in CHANNELS for axis in (1, -1))
    if first == last:
        raise DataError(
            f"{whose}: uint8 x must be images (n, h, w), or have its 1 or 3 channels "
            f"either second or last, found {x.shape}. Transpose images, or make "
            f"features float32 and ids int64."
        )
    return images if first else images.permute(0, 3, 1, 2).contiguous()


def _features(x: np.ndarray, path: Path) -> Shaped[Tensor, "examples ..."]:
    if np.issubdtype(x.dtype, np.integer):
        return torch.from_numpy(x.astype(np.int64))
    if not np.issubdtype(x.dtype, np.floating) or not np.isfinite(x).all():
        raise DataError(
            f"{path}: x must be uint8 images, finite floats or whole numbers, found "
            f"{x.dtype}. Convert it, and fill in missing values."
        )
    return torch.from_numpy(x.astype(np.float32))
