"""Arrays, tensors, columns, files and data sets of anybody's making, as tensors."""

import math
from collections.abc import Mapping, Sequence
from io import SEEK_END, BufferedReader
from pathlib import Path
from typing import Any, TypeGuard
from zipfile import ZipFile

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.utils.data import DataLoader

from covey.base.errors import DataError, blamed
from covey.base.files import MEBIBYTE, check_regular
from covey.data.examples import MASKED, Examples, Input, Layout

CHANNELS = (1, 3)
ALWAYS_ALLOWED = 1_024 * MEBIBYTE
"""Bytes that a client's file may unpack to, however small it is itself."""
EXPANSION = 20
"""How many times its own size a larger one may unpack to: images of text do 10."""


def read_client(path: Path) -> Examples:
    """Read one client's .npz file, with `x` and `y`, or `inputs` and `labels` (`from_pair`).

    Raises:
        DataError: it is malformed.
    """
    remedy = "Write it with numpy.savez(file, x=..., y=...)."
    with blamed(
        DataError, f"{path} must be an .npz file with plain arrays x and y, but it", remedy
    ):
        check_regular(path)
        with path.open("rb") as file:  # numpy leaves a broken file open
            _check_expansion(file)
            arrays = np.load(file, allow_pickle=False)
            x = _either(arrays, ("x", "inputs"))
            y = _either(arrays, ("y", "labels"))
    return from_pair(str(path), x, y)


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
            raise ValueError(f"it unpacks to more than {EXPANSION} times its {size:,} bytes")
        for each in archive.infolist():
            with archive.open(each) as member:
                old = np.lib.format.read_magic(member) == (1, 0)
                shape, _, dtype = (
                    np.lib.format.read_array_header_1_0(member)
                    if old
                    else np.lib.format.read_array_header_2_0(member)
                )
            if math.prod(shape) * dtype.itemsize > each.file_size:
                raise ValueError(f"an array of shape {shape} has more numbers than bytes")
    file.seek(0)


def images_of(x: np.ndarray, whose: object) -> Shaped[Tensor, "images channels height width"]:
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
            f"{whose}: uint8 x must be images (n, h, w), or have its 1 or 3 channels either second "
            f"or last, found {x.shape}. Transpose images, or make features float32 and ids int64."
        )
    return images if first else images.permute(0, 3, 1, 2).contiguous()


LABELS = ("label", "labels", "target", "y")
"""What a column of labels is called, where nobody says."""


def is_frame(found: object) -> bool:
    """Say whether this is a table with named columns, such as a pandas DataFrame."""
    return hasattr(found, "columns") and hasattr(found, "iloc")


def is_array(found: object) -> bool:
    """Say whether this is one array: of torch, numpy, or a column of a table."""
    if isinstance(found, (Tensor, np.ndarray)):
        return True
    return hasattr(found, "__array__") and hasattr(found, "dtype")


def kind_of(examples: Examples) -> str:
    """Return what inputs are, in words."""
    inputs = examples.inputs
    if examples.layout is not None:
        return str(examples.layout)
    if inputs.dtype == torch.uint8:
        kind = "uint8 images"
    else:
        kind = "floating-point" if inputs.is_floating_point() else "whole numbers"
    return f"{kind} of shape {tuple(inputs.shape[1:])}"


def tensor_of(who: str, what: str, found: object) -> Tensor:
    """Return an array as uint8, int64 or float32, on the CPU.

    Raises:
        DataError: its values are no numbers, or do not make one array.
    """
    if isinstance(found, Tensor):
        return _converted(who, what, found)
    with blamed(
        DataError, f"{who}: {what} must make one array of numbers, but", "Give all one shape."
    ):
        array = np.asarray(found)
        if array.dtype == object and array.ndim == 1:
            array = np.array(array.tolist())  # a column that may hold missing values
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{who}: {what} must be numbers, found {array.dtype}. Number classes and "
            f"words 0, 1, 2 ..., and fill in or remove what is missing."
        )
    integers = np.uint8 if array.dtype == np.uint8 else np.int64
    plain = {"f": np.float32, "b": np.bool_}.get(array.dtype.kind, integers)
    return torch.from_numpy(array.astype(plain))


def _converted(who: str, what: str, found: Tensor) -> Tensor:
    if found.is_complex() or found.layout != torch.strided or found.is_quantized:
        raise DataError(
            f"{who}: {what} must be a dense tensor of real numbers, found {found.dtype} "
            f"and {found.layout}. Convert it, for example with to_dense()."
        )
    found = found.detach().cpu()
    if found.is_floating_point():
        return found.float()
    return found if found.dtype in (torch.uint8, torch.bool) else found.long()


def from_pair(who: str, inputs: object, labels: object) -> Examples:
    """Return inputs and labels as examples, after a look at both.

    Images of numpy get their channels second; those of torch lie as they are. A dict of
    arrays, or a tuple of arrays with as many rows each as there are labels, are several
    inputs of a model, which takes them by keyword or by position.

    Raises:
        DataError: they do not fit together, or hold what is no number.
    """
    y = tensor_of(who, "its labels", labels)
    y, layout = y if y.is_floating_point() else y.long(), None
    if is_frame(inputs):
        x = _stacked(who, _columns(inputs))
    elif isinstance(inputs, Mapping) or (
        are_arrays(inputs) and all(len(each) == len(y) for each in inputs)
    ):  # several inputs by name or by position, and no tuple of examples
        x, layout = _packed(who, inputs)
    else:
        x = _as_seen(who, "its inputs", inputs)
        x = x.float() if x.dtype == torch.bool else x
    fits = y.dim() == 1 if y.is_floating_point() else y.dim() in (1, 2)
    if not x.dim() or not fits or len(x) != len(y):
        raise DataError(
            f"{who} must bring inputs (examples, ...) and as many labels: whole numbers "
            f"(examples,) or (examples, labels), or floating-point numbers (examples,), "
            f"found {tuple(x.shape)} and {tuple(y.shape)} of {y.dtype}. "
            f"Correct its arrays."
        )
    if not y.is_floating_point() and ((y < 0) & ((y != MASKED) | (y.dim() == 1))).any():
        raise DataError(
            f"{who}: its labels must be class numbers from 0 or, of tokens, {MASKED} for "
            f"padding, found {int(y.min())}. Number the classes 0, 1, 2 ..."
        )
    if not len(y):
        raise DataError(f"{who} must bring an example, found none. Leave it out.")
    for what, found in (("inputs", x), ("labels", y)):
        if found.is_floating_point() and not found.isfinite().all():
            raise DataError(
                f"{who}: its {what} must be finite, found NaN or infinity. Fill in or "
                f"remove what is missing."
            )
    return Examples(x, y, layout)


def _as_seen(who: str, what: str, found: object) -> Tensor:
    x = tensor_of(who, what, found)
    if x.dtype == torch.uint8 and not isinstance(found, Tensor):
        return images_of(x.numpy(), who)
    return x


def are_arrays(found: object) -> TypeGuard[tuple[Any, ...]]:
    """Say whether this is a tuple of arrays, none of which is a single number."""
    return (
        isinstance(found, tuple)
        and len(found) > 0
        and all(is_array(each) and getattr(each, "ndim", 1) > 0 for each in found)
    )


LARGEST = 2**53
"""Up to here float64 holds every whole number."""


def _packed(who: str, inputs: Any) -> tuple[Tensor, Layout]:  # noqa: ANN401 - a dict or a tuple
    """Return several inputs as one tensor; those of a dict in the order of their names.

    Raises:
        DataError: there are not as many of each, or a number is too large to be kept.
    """
    by_name = isinstance(inputs, Mapping)
    pairs = sorted(_columns(inputs).items()) if by_name else [("", each) for each in inputs]
    found = [_as_seen(who, f"its input {name!r}" if name else "an input", x) for name, x in pairs]
    if len({each.shape[:1] for each in found}) != 1 or not found[0].dim():
        raise DataError(
            f"{who} must bring as many examples of every input, found inputs of shapes "
            f"{[tuple(each.shape) for each in found]}. Correct its arrays."
        )
    for each in found:
        if each.dtype == torch.int64 and ((each > LARGEST) | (each < -LARGEST)).any():
            raise DataError(
                f"{who}: where a model takes several inputs whole numbers must lie within "
                f"2^53, found {int(each.max())} and {int(each.min())}. Number what they stand "
                f"for 0, 1, 2 ..."
            )
    named = zip((name for name, _ in pairs), found, strict=True)
    layout = Layout(tuple(Input(name, tuple(x.shape[1:]), x.dtype) for name, x in named))
    return layout.packed(found), layout


def from_columns(who: str, found: object, label: str) -> Examples:
    """Return a table's columns as examples: one holds the labels, the others the inputs.

    A table of whole numbers throughout gives whole numbers; a single column that is no
    plain list of numbers, images for example, is the inputs by itself. Several columns of
    a dict, all of which are none, are several inputs of a model, by keyword.

    Raises:
        DataError: the column of labels, or of inputs, cannot be told.
    """
    columns = _columns(found)
    candidates = [name for name in ((label,) if label else LABELS) if name in columns]
    if len(candidates) != 1:
        wanted = f"the column data.label = {label!r}" if label else "one column of labels"
        several = f"{len(candidates)}: {', '.join(candidates)}" if candidates else "none"
        raise DataError(
            f"{who} must have {wanted}, called {', '.join(LABELS)} if data.label names no other, "
            f"found {several} among {', '.join([*columns][:8])}. Set data.label to its name."
        )
    labels = columns.pop(candidates[0])
    if not columns:
        raise DataError(
            f"{who} has a column {candidates[0]!r} of labels and no other. Add columns of inputs."
        )
    if len(columns) == 1 and not is_frame(found):
        (inputs,) = columns.values()
        return from_pair(who, inputs, labels)
    if not is_frame(found) and all(getattr(each, "ndim", 1) > 1 for each in columns.values()):
        return from_pair(who, columns, labels)
    return from_pair(who, _stacked(who, columns), labels)


def _columns(found: Any) -> dict[str, object]:  # noqa: ANN401 - a table, or a dict of columns
    if isinstance(found, Mapping):
        return {str(name): column for name, column in found.items()}
    return {str(name): found[name].to_numpy() for name in found.columns}


def _stacked(who: str, columns: Mapping[str, object]) -> Tensor:
    """Return columns of numbers side by side; whole only where all of them are."""
    sides = [tensor_of(who, f"column {name!r}", each) for name, each in columns.items()]
    for name, side in zip(columns, sides, strict=True):
        if side.is_floating_point() and not side.isfinite().all():
            raise DataError(
                f"{who}: column {name!r} must be finite, found NaN or infinity. Fill in or "
                f"remove what is missing."
            )
        if side.shape != sides[0].shape or side.dim() != 1:
            raise DataError(
                f"{who}: where there are several columns of inputs each must be a list of "
                f"numbers, found {tuple(side.shape)} in {name!r}, beside "
                f"{', '.join(each for each in columns if each != name)}. Keep one column "
                f"of inputs and one of labels; or, where a model takes all of these by "
                f"keyword, pass a pair of a dict and its labels."
            )
    wholes = [not each.is_floating_point() and each.dtype != torch.bool for each in sides]
    dtype = torch.int64 if all(wholes) else torch.float32
    return torch.stack([each.to(dtype) for each in sides], dim=1)


def from_items(who: str, found: Any, label: str) -> Examples:  # noqa: ANN401 - duck-typed
    """Return all items of a data set, each read once, as examples.

    Items are (input, label), or dicts with a column of labels. An input may be a dict, or
    a tuple of arrays: several inputs of a model.

    Raises:
        DataError: naming the item that cannot be read, or is unlike the first.
    """
    items = _read(who, found)
    if isinstance(items[0], Mapping):
        columns = _by_key(who, items)
        return from_columns(who, columns, label or _class_label(found, list(items[0])))
    for at, each in enumerate(items):
        if not isinstance(each, (tuple, list)) or len(each) != 2:
            raise DataError(
                f"{who}: item {at} of its {type(found).__name__} must be (input, label) or "
                f"a dict, found {described(each)}. Return both from __getitem__."
            )
    inputs, labels = zip(*items, strict=True)
    y = _column(who, "label", labels)
    if isinstance(inputs[0], Mapping):
        return from_pair(who, _by_key(who, inputs), y)
    places = {len(x) if isinstance(x, tuple) else 0 for x in inputs}
    if are_arrays(inputs[0]) and len(places) == 1:
        by_place = _by_key(who, [dict(enumerate(x)) for x in inputs])
        return from_pair(who, tuple(by_place.values()), y)
    return from_pair(who, _column(who, "input", inputs), y)


def _by_key(who: str, items: Sequence[Any]) -> dict[str, Tensor | np.ndarray]:
    """Return the values of each key of the first as one array."""
    for at, item in enumerate(items):
        for name in items[0]:
            if not isinstance(item, Mapping) or name not in item:
                raise DataError(
                    f"{who}: item {at} must have {name!r} like the first, found "
                    f"{described(item)}. Give every item the same keys."
                )
    return {str(name): _column(who, name, [item[name] for item in items]) for name in items[0]}


def _read(who: str, found: Any) -> list[Any]:  # noqa: ANN401 - duck-typed
    name = type(found).__name__
    remedy = "Pass a map-style data set, with __len__ and __getitem__."
    with blamed(DataError, f"{who}: the length of its {name}", remedy):
        count = len(found)
    if not count:
        raise DataError(f"{who} must bring an example, found none. Leave it out.")
    items: list[Any] = []
    for at in range(count):
        with blamed(DataError, f"{who}: item {at} of your {name}", "Correct its __getitem__."):
            items.append(found[at])
    return items


def _class_label(found: object, names: Sequence[object]) -> str:
    """Return the column that a data set of Hugging Face calls a class, if it has one."""
    features = getattr(found, "features", None)
    if not isinstance(features, Mapping) or any(name in LABELS for name in names):
        return ""
    classes = [str(name) for name, kind in features.items() if hasattr(kind, "names")]
    return classes[0] if len(classes) == 1 else ""


def _column(who: str, what: object, values: Sequence[Any]) -> Tensor | np.ndarray:
    """Return one value of each item as one array."""
    arrays: list[Tensor | np.ndarray] = []
    for at, value in enumerate(values):
        with blamed(
            DataError, f"{who}: {what} of item {at} must be numbers, but it", "Convert it."
        ):
            arrays.append(value.detach().cpu() if isinstance(value, Tensor) else np.asarray(value))
    for at, each in enumerate(arrays):
        if each.shape != arrays[0].shape:
            raise DataError(
                f"{who}: {what} of item {at} must have the shape of the first, "
                f"{tuple(arrays[0].shape)}, found {tuple(each.shape)}. Bring all to one "
                f"shape: pad, crop or resize."
            )
    if all(isinstance(each, Tensor) for each in arrays):
        return torch.stack([torch.as_tensor(each) for each in arrays])
    return np.stack([np.asarray(each) for each in arrays])


def described(found: object) -> str:
    """Return what this is, for a message that refuses it."""
    if isinstance(found, DataLoader):
        return "a DataLoader, which has drawn its batches already: pass its .dataset"
    if isinstance(found, Tensor):
        return f"one tensor of shape {tuple(found.shape)}"
    if isinstance(found, (tuple, list)):
        return f"{len(found)} values"
    if isinstance(found, Mapping):
        return f"a dict with {', '.join(map(str, found))}"
    return f"a {type(found).__name__}"
