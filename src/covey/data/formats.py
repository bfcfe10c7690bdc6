"""How published files are read: idx (MNIST and its relatives), CIFAR-10, LEAF, CelebA, UCI."""

import io
import json
import math
import pickle
import struct
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy import ndarray
from PIL import Image
from torch import Tensor

from covey.base.errors import DataError, blamed
from covey.base.files import MEBIBYTE
from covey.data.examples import Examples, PublishedData
from covey.data.source import PUBLICATIONS, Publication

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08
LARGEST_IDX = 2_048 * MEBIBYTE
"""Bytes unpacked: EMNIST, the largest, has 550 MB."""


EMNIST_TRAIN = "emnist-byclass-train-images-idx3-ubyte.gz"

NUM_CHARACTERS = 62

SIDE = 28

NUM_ATTRIBUTES = 40

FACE_SIDE = 32

PATIENT = (
    *("age", "sex", "chest_pain", "blood_pressure", "cholesterol", "blood_sugar", "ecg"),
    *("heart_rate", "angina", "depression", "slope", "vessels", "thal", "label"),
)

UNKNOWN_MOSTLY = ("slope", "vessels", "thal")
"""Columns that hospitals but Cleveland's hardly filled in."""

LEVELS = {"chest_pain": (1, 2, 3, 4), "ecg": (0, 1, 2)}
"""Kinds without an order: a column for each but the first, the same at all hospitals."""

PUBLISHED_SPLIT = 43
"""The seed of Fed-Heart-Disease's training and test rows."""


def read_mnist(publication: Publication, folder: Path) -> PublishedData:
    """Return a publisher's training and test images of ten classes.

    Raises:
        DataError: as all that read files here: one is missing or malformed.
        ChecksumError: a file is not the published one.
    """
    train, test = (_read_idx(publication, part, folder, 10) for part in ("train", "t10k"))
    return PublishedData(publication.source, train, test, num_classes=10)


def _broken(path: Path, must: str, found: object) -> DataError:
    """Return what is raised of a file that is not as its publisher made it."""
    return DataError(f"{path} must {must}, found {found}: get it again.")


def read_emnist(publication: Publication, folder: Path) -> PublishedData:
    """Return the images, upright; without its training file, those of the test file."""

    def part(name: str) -> Examples:
        examples = _read_idx(publication, f"emnist-byclass-{name}", folder, NUM_CHARACTERS)
        upright = examples.inputs.transpose(-1, -2).contiguous()  # stored by column
        return Examples(upright, examples.labels)

    test = part("test")
    if publication.has(EMNIST_TRAIN, folder):
        return PublishedData(publication.source, part("train"), test, NUM_CHARACTERS)
    note = (
        f"The training file of {publication.source} is not there: all {len(test):,} images come "
        f"from the test file."
    )
    return PublishedData(publication.source, test, None, NUM_CHARACTERS, (note,))


def _read_idx(publication: Publication, part: str, folder: Path, num_classes: int) -> Examples:
    """Return the images of one channel and the labels of a part of a data set."""
    content, path = publication.read(f"{part}-images-idx3-ubyte.gz", folder)
    images = parse_idx(content, path, dimensions=3).unsqueeze(1)
    content, path = publication.read(f"{part}-labels-idx1-ubyte.gz", folder)
    labels = parse_idx(content, path, dimensions=1).long()
    if len(labels) != len(images):
        raise _broken(path, f"hold {len(images):,} labels", f"{len(labels):,}")
    if (labels >= num_classes).any():
        raise _broken(path, f"hold labels below {num_classes}", int(labels.max()))
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
    if content.startswith(GZIP_MAGIC):
        try:
            content = gunzip(content, LARGEST_IDX)
        except ValueError as error:
            raise _broken(path, "be whole gzip", error) from error
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        must = f"start with {magic.hex()} (idx, unsigned bytes, {dimensions} dimensions)"
        raise _broken(path, must, content[:4].hex() or "nothing")
    body = 4 + 4 * dimensions
    if len(content) < body:
        raise _broken(path, "have a whole header", "a part of it")
    shape = struct.unpack(f">{dimensions}I", content[4:body])
    if len(content) - body != math.prod(shape):
        must = f"have {' x '.join(map(str, shape))} bytes after its header"
        raise _broken(path, must, f"{len(content) - body:,}")
    values = np.frombuffer(content, np.uint8, offset=body).reshape(shape)
    return torch.from_numpy(values.copy())


def read_cifar10(publication: Publication, folder: Path) -> PublishedData:
    """Return the images of the batches that are there, and say which are not."""
    names = [f"data_batch_{number}" for number in range(1, 6)]
    missing = [name for name in names if not publication.has(name, folder)]
    # With no batch at all, reading the first one says what is missing and where.
    present = [name for name in names if name not in missing] or names[:1]
    *batches, test = (
        parse_batch(*publication.read(name, folder)) for name in (*present, "test_batch")
    )
    train = Examples.joined(batches)
    lacking = f"{', '.join(missing)} of {publication.source} are not there"
    notes = (f"{lacking}: {len(train):,} training images.",) if missing else ()
    return PublishedData(publication.source, train, test, 10, notes)


def parse_batch(content: bytes, path: Path) -> Examples:
    """Return the images and labels of one batch of CIFAR-10.

    Args:
        content: the file's bytes.
        path: names the file in errors.

    Raises:
        DataError: the pickle asks for anything that a batch does not need, or does not
            hold a batch.
    """
    subject = f"{path} must be a CIFAR-10 python batch with 'data' and 'labels', but reading it"
    with blamed(DataError, subject, "get it again."):
        batch = _BatchUnpickler(content, path).load()
        images = torch.from_numpy(batch[b"data"].pixels()).view(-1, 3, 32, 32)
        classes = batch[b"labels"]
        if len(classes) != len(images) or not set(classes) <= set(range(10)):
            raise ValueError("there must be one label in 0..9 for every image")
        return Examples(images, torch.tensor(classes))


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


class _BatchUnpickler(pickle.Unpickler):
    def __init__(self, content: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.path = path

    def find_class(self, module: str, name: str, /) -> type:
        match module, name:
            case ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"):
                return _Array
            case ("numpy", "ndarray"):
                return _Array
            case ("numpy", "dtype"):
                return _Dtype
        found = f"a pickle that asks for {module}.{name} (not run: do not open it with pickle)"
        raise _broken(self.path, "be a CIFAR-10 python batch", found)


Part = Literal["train", "test"]
Written = tuple[UInt8[np.ndarray, "n 784"], Int64[np.ndarray, " n"]]


def read_femnist(publication: Publication, folder: Path) -> PublishedData:
    """Return the images with their writers; without LEAF's files, EMNIST's without writers."""

    def part(name: Part) -> tuple[Examples, Tensor]:
        numbers: dict[str, int] = {}
        pixels, labels, writers = [], [], []
        for content, path in publication.read_all(f"{name}/*.json", folder):
            for writer, (images, classes) in parse_leaf(content, path).items():
                number = numbers.setdefault(writer, len(numbers))
                pixels.append(images)
                labels.append(classes)
                writers.append(np.full(len(classes), number))
        inputs = torch.from_numpy(np.concatenate(pixels)).view(-1, 1, SIDE, SIDE)
        examples = Examples(inputs, torch.from_numpy(np.concatenate(labels)))
        return examples, torch.from_numpy(np.concatenate(writers))

    emnist = PUBLICATIONS["emnist"]
    has_train, has_test = (publication.has(f"{name}/*.json", folder) for name in ("train", "test"))
    if not has_train and emnist.has(EMNIST_TRAIN, folder):
        source = read_emnist(emnist, folder)
        note = (
            f"LEAF's files of {publication.source} are not there: its images are those of "
            f"{source.name}, cut and scaled in another way, and their writers are unknown."
        )
        return replace(source, name=publication.source, notes=(*source.notes, note))
    train, writers = part("train")
    test = part("test")[0] if has_test else None
    notes = () if has_test else (f"The test files of {publication.source} are not there.",)
    return PublishedData(publication.source, train, test, NUM_CHARACTERS, notes, writers)


def parse_leaf(content: bytes, path: Path) -> dict[str, Written]:
    """Return the images and labels of each writer of one file of LEAF's, in the file's order.

    LEAF's background is 1; it is turned to 0, as in MNIST, and ink to 255.

    Raises:
        DataError: the file, which `path` names, is malformed.
    """
    subject = (
        f"{path} must be LEAF's json of FEMNIST, with users, num_samples and user_data, 784 "
        f"numbers in [0, 1] per image and labels below {NUM_CHARACTERS}, but reading it"
    )
    with blamed(DataError, subject, "make it again with LEAF."):
        part = json.loads(content, object_hook=_compact)
        written = {user: part["user_data"][user] for user in part["users"]}
        counts = [len(labels) for _, labels in written.values()]
        if not counts or counts != part["num_samples"]:
            raise ValueError("num_samples is not how many images the users have")
        return written


def _compact(table: dict[str, Any]) -> dict[str, Any] | Written:
    """Turn a writer's lists into arrays as soon as they are read: they fill the memory."""
    if table.keys() != {"x", "y"}:
        return table
    labels = np.array(table["y"])
    pixels = np.array(table["x"], dtype=np.float32).reshape(len(labels), SIDE * SIDE)
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("a pixel is outside [0, 1]")
    if not np.isin(labels, np.arange(NUM_CHARACTERS)).all():
        raise ValueError("a label is no class")
    return np.rint((1 - pixels) * 255).astype(np.uint8), labels.astype(np.int64)


MOST: Mapping[Part, int] = MappingProxyType({"train": 50_000, "test": 20_000})


def read_celeba(publication: Publication, folder: Path) -> PublishedData:
    """Return the first images of each part, and say how many are left out."""
    notes: list[str] = []

    def faces(part: Part, kind: str) -> Examples:
        of_part = parse_names(*publication.read("list_eval_partition.txt", folder), part)
        names = of_part[: MOST[part]]
        labels = parse_attributes(*publication.read("list_attr_celeba.txt", folder), names)
        if len(names) < len(of_part):
            notes.append(
                f"Of the {len(of_part):,} {kind} images of {publication.source} the first "
                f"{len(names):,} are used."
            )

        def image(name: str) -> Tensor:
            return parse_image(*publication.read(f"img_align_celeba/{name}", folder))

        with ThreadPoolExecutor() as threads:
            return Examples(torch.stack(list(threads.map(image, names))), labels)

    train, test = faces("train", "training"), faces("test", "test")
    return PublishedData(publication.source, train, test, NUM_ATTRIBUTES, tuple(notes))


def parse_names(content: bytes, path: Path, part: Part) -> list[str]:
    """Return the names of a part's images of CelebA.

    Raises:
        DataError: the file, which `path` names, is malformed or has none.
    """
    number = "0" if part == "train" else "2"
    lines = [line.split() for line in content.decode(errors="replace").splitlines()]
    names = [line[0] for line in lines if line[1:] == [number]]
    if not names or any(line and len(line) != 2 for line in lines):
        must = "hold an image's name and the number of its part per line"
        raise _broken(path, must, f"{len(names):,} images of part {number} ({part})")
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
        if len(values) != NUM_ATTRIBUTES or not {"-1", "1"}.issuperset(values):
            must = f"hold {NUM_ATTRIBUTES} times -1 or 1 after {name}"
            raise _broken(path, must, repr(" ".join(values)[:60]))
    return torch.tensor([[int(value == "1") for value in known[name]] for name in names])


def parse_image(content: bytes, path: Path) -> UInt8[Tensor, "3 32 32"]:
    """Return the middle square of an image (178 x 178 of 178 x 218), made 32 x 32.

    Bilinear: each pixel is a weighted mean of all that lie under it.

    Raises:
        DataError: the file, which `path` names, is no image.
    """
    subject = f"{path} must be an image, but reading it"
    with blamed(DataError, subject, "get it again."), Image.open(io.BytesIO(content)) as image:
        width, height = image.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        cropped = image.convert("RGB").crop((left, top, left + side, top + side))
        small = cropped.resize((FACE_SIDE, FACE_SIDE), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(small)).permute(2, 0, 1)


Table = dict[str, ndarray]
"""Columns by name, the column of labels among them."""


def read_hospitals(
    publication: Publication, folder: Path, split: int
) -> dict[str, tuple[Table, Table]]:
    """Return every hospital's training and test rows; those with a missing value are left out.

    Both classes are in both parts, unless a class has at most two rows.

    Args:
        publication: the file of every hospital, `processed.NAME.data`.
        folder: where they lie.
        split: 0: the published one.
    """
    from sklearn.model_selection import train_test_split

    hospitals: dict[str, tuple[Table, Table]] = {}
    sizes: Any = {"train_size": 0.66, "test_size": 0.34, "random_state": PUBLISHED_SPLIT + split}
    for name in publication.files:
        table = parse_patients(*publication.read(name, folder))
        labels = table["label"]
        by = labels if np.bincount(labels, minlength=2).min() > 2 else None
        parts: Any = train_test_split(np.arange(len(labels)), **sizes, stratify=by)
        train, test = ({key: column[rows] for key, column in table.items()} for rows in parts)
        hospitals[name.split(".")[1]] = train, test
    return hospitals


def parse_patients(content: bytes, path: Path) -> Table:
    """Return the 13 columns of features, and the labels, of patients without a missing value.

    Raises:
        DataError: the file, which `path` names, is malformed.
    """
    must = f"hold {len(PATIENT)} numbers or ? per line"
    lines = content.decode(errors="replace").replace("?", "nan").split()
    try:
        values = np.array([line.split(",") for line in lines], dtype=np.float32)
    except ValueError as error:
        raise _broken(path, must, error) from None
    if values.shape[1:] != (len(PATIENT),):
        raise _broken(path, must, f"numbers of shape {values.shape}")
    known = [place for place, name in enumerate(PATIENT) if name not in UNKNOWN_MOSTLY]
    values = values[~np.isnan(values[:, known]).any(axis=1)]
    table: Table = {}
    for name, column in zip((PATIENT[place] for place in known), values.T[known], strict=True):
        kinds = LEVELS.get(name, ())[1:]
        table |= {f"{name}_{kind}": (column == kind).astype(np.float32) for kind in kinds}
        if not kinds:
            table[name] = column
    return {**table, "label": (table["label"] > 0).astype(np.int64)}


def gunzip(content: bytes, at_most: int) -> bytes:
    """Return the one gzip member in `content`, unpacked.

    Raises:
        ValueError: it is no whole gzip file, or holds more bytes than `at_most`.
    """
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacker.decompress(content, at_most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(unpacked) > at_most:
        raise ValueError(f"it holds more than {at_most:,} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it ends too early, or goes on after its end")
    return unpacked
