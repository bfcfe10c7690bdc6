"""The files of CelebA: faces, and which of 40 attributes each has."""

import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from PIL import Image
from torch import Tensor

from covey.data.examples import Examples
from covey.data.files import Publication, read_file
from covey.errors import DataError

__all__ = ["NUM_LABELS", "parse_attributes", "parse_image", "parse_names", "read_part"]

NUM_LABELS = 40
SIDE = 32

Part = Literal["train", "test"]
NUMBERS: Mapping[Part, str] = MappingProxyType({"train": "0", "test": "2"})
MOST: Mapping[Part, int] = MappingProxyType({"train": 50_000, "test": 20_000})


def read_part(
    publication: Publication, part: Part, folder: Path
) -> tuple[Examples, int]:
    """Return the first 50,000 training or 20,000 test images, and how many there are.

    An image has 40 labels: 1 where it has the attribute, else 0.

    Raises:
        DataError: a file is missing or malformed.
    """
    of_part = parse_names(
        *read_file(publication, "list_eval_partition.txt", folder), part
    )
    names = of_part[: MOST[part]]
    content, path = read_file(publication, "list_attr_celeba.txt", folder)
    labels = parse_attributes(content, path, names)

    def image(name: str) -> UInt8[Tensor, "3 height width"]:
        return parse_image(*read_file(publication, f"img_align_celeba/{name}", folder))

    with ThreadPoolExecutor() as threads:
        images = torch.stack(list(threads.map(image, names)))
    return Examples(images, labels), len(of_part)


def parse_names(content: bytes, path: Path, part: Part) -> list[str]:
    """Return the names of a part's images.

    Raises:
        DataError: the file, which `path` names, is malformed or has none.
    """
    lines = [line.split() for line in content.decode(errors="replace").splitlines()]
    names = [line[0] for line in lines if line[1:] == [NUMBERS[part]]]
    if not names or any(line and len(line) != 2 for line in lines):
        raise DataError(
            f"{path} must hold an image's name and the number of its part per line, "
            f"found {len(names):,} images of part {NUMBERS[part]} ({part}). Get the file "
            f"again."
        )
    return names


def parse_attributes(
    content: bytes, path: Path, names: Sequence[str]
) -> Int64[Tensor, "images 40"]:
    """Return the attributes of these images: 1 has it, 0 (-1 in the file) has not.

    Raises:
        DataError: the file, which `path` names, lacks an image or is malformed.
    """
    lines = (line.split() for line in content.decode(errors="replace").splitlines())
    known = {line[0]: line[1:] for line in lines if line}
    for name in names:
        values = known.get(name, [])
        if len(values) != NUM_LABELS or not {"-1", "1"}.issuperset(values):
            raise DataError(
                f"{path} must hold {NUM_LABELS} times -1 or 1 after {name}, found "
                f"{' '.join(values)[:60]!r}. Get the file again."
            )
    return torch.tensor(
        [[int(value == "1") for value in known[name]] for name in names]
    )


def parse_image(content: bytes, path: Path) -> UInt8[Tensor, "3 32 32"]:
    """Return the middle square of an image (178 x 178 of 178 x 218), made 32 x 32.

    Bilinear: each pixel is a weighted mean of all that lie under it.

    Raises:
        DataError: the file, which `path` names, is no image.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
            side = min(width, height)
            left, top = (width - side) // 2, (height - side) // 2
            square = (left, top, left + side, top + side)
            cropped = image.convert("RGB").crop(square)
            small = cropped.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except Exception as error:  # a malformed file can raise anything
        raise DataError(
            f"{path} must be an image, but: {error}. Get the file again."
        ) from error
    return torch.from_numpy(np.array(small)).permute(2, 0, 1)
