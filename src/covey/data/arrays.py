"""One client's data, in whatever form they come, made into examples: the form is looked at here.

They are (inputs, labels) as arrays, a table with a column of labels, a dict of columns, a
map-style data set (`__len__` and `__getitem__`, with items (input, label) or dicts),
`Examples`, or an .npz or .csv file; where a model takes several inputs they are a dict of
arrays, by keyword, or a tuple of them. Or a pair (train, test) of two of these, of which the
second is what the client holds out. A pair is (inputs, labels) where its second half is an array
or a list of numbers, and (train, test) where both halves are such data by themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import SEEK_END, BufferedReader
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from covey.base.errors import DataError, blamed
from covey.base.files import MEBIBYTE, check_regular
from covey.base.names import ClientName
from covey.data.examples import MASKED, Examples, Input, Layout, TrainTest, hashes
from covey.data.spreadsheet import read_columns

FORMS = (
    "(inputs, labels) as arrays, a table or a dict with a column of labels, a data set "
    "with __len__ and __getitem__, or a pair (train, test) of these"
)
PARTS = {"train", "test", "validation", "valid"}
LABELS = ("label", "labels", "target", "y")
"""What a column of labels is called, where `data.label` names none."""

CHANNELS = (1, 3)
LARGEST = 2**53
"""Up to here float64 holds every whole number."""

ALWAYS_ALLOWED = 1_024 * MEBIBYTE
"""Bytes that a client's file may unpack to, however small it is itself."""
EXPANSION = 20
"""How many times its own size a larger one may unpack to: images of text do 10."""


_READ_TWICE = 32
"""Items that are read twice: a transform that changes each tenth is seen 29 times out of 30."""


def client_data_of(name: ClientName, data: Any, label: str = "") -> TrainTest:  # noqa: ANN401
    """Return one client's examples, with those that it holds out where the data have them.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    if isinstance(data, Mapping) and "train" in data and PARTS.issuperset(data):
        if set(data) != {"train", "test"}:
            raise DataError(f"{name} must bring 'train' and 'test', found {[*data]}: join them.")
        data = (data["train"], data["test"])
    parted = isinstance(data, (tuple, list)) and len(data) == 2 and form_of(data) != "pair"
    if not (parted and all(map(_is_set, data))):
        return TrainTest(examples_of(name, data, label))
    train, test = data
    return TrainTest(
        examples_of(f"{name} (train)", train, label), examples_of(f"{name} (test)", test, label)
    )


def examples_of(name: ClientName, data: Any, label: str = "") -> Examples:  # noqa: ANN401
    """Return one client's data as examples, without a part that it holds out.

    Args:
        name: whose, or which of them, for messages.
        data: in any form.
        label: the column of labels; "": one of `LABELS`.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    match form_of(data):
        case "examples":
            if data.layout is not None:
                return data
            return replace(_from_pair(name, data.inputs, data.labels), columns=data.columns)
        case "columns":
            inputs, labels = _from_columns(name, data, label)
        case "pair":
            inputs, labels = data
        case "items":
            inputs, labels = _from_items(name, data, label)
            _check_repeatable(name, data, label, _from_pair(name, inputs, labels))
        case None:
            raise DataError(f"{name} must bring {FORMS}, found {described(data)}: convert it.")
    return _from_pair(name, inputs, labels)


def read_client(path: Path, label: str = "") -> Examples:
    """Read one client's file: .npz with `x` and `y`, or `inputs` and `labels`; or a .csv table.

    Args:
        path: of the file.
        label: the column of labels of a table; "": one of `LABELS`.

    Raises:
        DataError: it is malformed.
    """
    if path.suffix.lower() == ".csv":
        return examples_of(str(path), read_columns(path), label)
    remedy = "write it with numpy.savez(file, x=..., y=...)."
    with blamed(
        DataError, f"{path} must be an .npz file with plain arrays x and y, but it", remedy
    ):
        check_regular(path)
        with path.open("rb") as file:  # numpy leaves a broken file open
            _check_expansion(file)
            arrays = np.load(file, allow_pickle=False)
            parts: list[np.ndarray] = []
            for names in (("x", "inputs"), ("y", "labels")):
                here = [name for name in names if name in arrays]
                if len(here) != 1:
                    raise ValueError(f"it must hold one of {' and '.join(names)}")
                parts.append(arrays[here[0]])
    return _from_pair(str(path), *parts)


def _check_expansion(file: BufferedReader) -> None:
    """Refuse an archive that says itself that it unpacks to far more than its size.

    Raises:
        ValueError: it does, or an array's header announces more than its bytes.
    """
    with ZipFile(file) as archive:
        size = file.seek(0, SEEK_END)
        allowed = max(ALWAYS_ALLOWED, EXPANSION * size)
        if sum(member.file_size for member in archive.infolist()) > allowed:
            raise ValueError(f"it unpacks to more than {EXPANSION} times its {size:,} bytes")
        for member in archive.infolist():
            with archive.open(member) as array:
                old = np.lib.format.read_magic(array) == (1, 0)
                read = np.lib.format.read_array_header_1_0
                shape, _, dtype = (read if old else np.lib.format.read_array_header_2_0)(array)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"an array of shape {shape} has more numbers than bytes")
    file.seek(0)


def form_of(data: Any) -> Literal["examples", "columns", "pair", "items"] | None:  # noqa: ANN401
    """Return in which form one client's data come; None: in none that is read."""
    if isinstance(data, Examples):
        return "examples"
    if _is_table(data) or isinstance(data, Mapping):
        return "columns"
    if isinstance(data, (tuple, list)) and len(data) == 2 and _is_pair(*data):
        return "pair"
    if isinstance(data, (str, bytes, tuple)) or _is_array(data):
        return None
    return "items" if hasattr(data, "__getitem__") and hasattr(data, "__len__") else None


def _is_pair(inputs: object, labels: Any) -> bool:  # noqa: ANN401 - anything
    """Say whether these two are inputs and labels."""
    if not (_is_array(inputs) or _is_table(inputs) or isinstance(inputs, (Sequence, Mapping))):
        return False
    if _is_array(labels):
        return getattr(labels, "ndim", 1) > 0
    listed = isinstance(labels, list) or (
        isinstance(labels, tuple) and not isinstance(inputs, tuple)
    )
    return listed and all(map(_is_scalar, labels))


def _is_scalar(value: Any) -> bool:  # noqa: ANN401 - anything
    """Say whether this is one number or one text, of Python, numpy or torch."""
    return isinstance(value, (bool, int, float, str, np.generic)) or (
        _is_array(value) and getattr(value, "ndim", 1) == 0
    )


def _is_set(data: Any) -> bool:  # noqa: ANN401 - anything
    """Say whether this is a whole set of examples, and not one of them."""
    form = form_of(data)
    if isinstance(data, Mapping):
        return all(isinstance(x, (list, tuple)) or getattr(x, "ndim", 0) > 0 for x in data.values())
    if isinstance(data, list) and form == "items":
        return all(isinstance(part, (tuple, list, Mapping)) for part in data)
    return form is not None or isinstance(data, DataLoader)


def _is_table(data: object) -> bool:
    """Say whether this has named columns, as a pandas DataFrame has."""
    return hasattr(data, "columns") and hasattr(data, "iloc")


def _is_array(data: object) -> bool:
    """Say whether this is one array: of torch, numpy, or a column of a table."""
    if isinstance(data, (Tensor, np.ndarray)):
        return True
    return hasattr(data, "__array__") and hasattr(data, "dtype") and not _is_table(data)


def described(data: object) -> str:
    """Return what this is, for a message that refuses it."""
    if isinstance(data, DataLoader):
        return "a DataLoader, which has drawn its batches already: pass its .dataset"
    if isinstance(data, Tensor):
        return f"one tensor of shape {tuple(data.shape)}"
    if isinstance(data, (tuple, list)):
        return f"{len(data)} values"
    if isinstance(data, Mapping):
        return f"a dict with {', '.join(map(str, data))}"
    return f"a {type(data).__name__}"


def in_order(subject: str, examples: Examples, columns: tuple[str, ...]) -> Examples:
    """Return examples of a table with its columns in this order; what has no names stays.

    Raises:
        DataError: its columns have other names.
    """
    own = examples.columns
    if not own or not columns or own == columns:
        return examples
    if len(own) != len(columns) or {*own} != {*columns}:
        raise DataError(f"{subject} must have columns {columns}, found {own}: give it these.")
    places = torch.tensor([own.index(name) for name in columns])
    return replace(examples, inputs=examples.inputs.index_select(1, places), columns=columns)


def check_alike(sets: Mapping[str, Examples]) -> None:
    """Refuse sets of examples, by what they are, whose inputs or labels are of several kinds.

    Raises:
        DataError: naming the first and one that is unlike it.
    """
    kinds = {what: kind_of(examples) for what, examples in sets.items()}
    first = next(iter(kinds))
    for what, kind in kinds.items():
        if kind != kinds[first]:
            raise DataError(f"{what} must be {kinds[first]}, as {first}, found {kind}: change it.")


def kind_of(examples: Examples) -> str:
    """Return what inputs and labels are, in words."""
    inputs, shape = examples.inputs, tuple(examples.labels.shape[1:])
    labels = f", with labels of shape {shape}" if shape else ""
    if examples.layout is not None:
        return f"{examples.layout}{labels}"
    if inputs.dtype == torch.uint8:
        kind = "uint8 images"
    else:
        kind = "floating-point" if inputs.is_floating_point() else "whole numbers"
    return f"{kind} of shape {tuple(inputs.shape[1:])}{labels}"


def _from_columns(subject: str, data: Any, label: str) -> tuple[Any, Any]:  # noqa: ANN401
    """Return inputs and labels out of columns, of which one holds the labels.

    A table of whole numbers throughout gives whole numbers; a single column of a dict, images
    for example, is the inputs by itself, unless it is an array of one number per example.
    Several, none of which is a list of numbers, are several inputs of a model, by keyword.
    """
    columns = _columns(data)
    candidates = [name for name in ((label,) if label else LABELS) if name in columns]
    if len(candidates) != 1:
        raise DataError(
            f"{subject} must have one column of labels, {label or ' or '.join(LABELS)}, found "
            f"{', '.join(candidates) or 'none'} among {', '.join([*columns][:8])}: set data.label."
        )
    labels = columns.pop(candidates[0])
    if not columns:
        raise DataError(
            f"{subject} must have input columns, found {candidates[0]!r} alone: add some."
        )
    if isinstance(data, Mapping):
        first = next(iter(columns.values()))
        if len(columns) == 1 and getattr(first, "ndim", 2) != 1:
            return first, labels
        if all(getattr(column, "ndim", 1) > 1 for column in columns.values()):
            return columns, labels
    return _Table(_stacked(subject, columns), tuple(columns)), labels


class _Table(NamedTuple):
    """Columns of numbers side by side, and what they are called."""

    values: Tensor
    names: tuple[str, ...]


def _columns(data: Any) -> dict[str, Any]:  # noqa: ANN401 - a table, or a dict of columns
    if isinstance(data, Mapping):
        return {str(name): column for name, column in data.items()}
    return {str(name): data[name].to_numpy() for name in data.columns}


def _stacked(subject: str, columns: Mapping[str, object]) -> Tensor:
    """Return columns of numbers side by side; whole only where all of them are."""
    sides = [_tensor(subject, f"column {name!r}", column) for name, column in columns.items()]
    for name, side in zip(columns, sides, strict=True):
        _check_finite(subject, f"column {name!r}", side)
        if side.shape != sides[0].shape or side.dim() != 1:
            raise DataError(
                f"{subject}: each of several columns must be a list of numbers, found {name!r} of "
                f"{tuple(side.shape)}: keep one of inputs, or pass a pair (dict, labels), if a "
                f"model takes all of them by keyword."
            )
    wholes = [not side.is_floating_point() and side.dtype != torch.bool for side in sides]
    dtype = torch.int64 if all(wholes) else torch.float32
    return torch.stack([side.to(dtype) for side in sides], dim=1)


def _check_repeatable(subject: str, data: Any, label: str, first: Examples) -> None:  # noqa: ANN401
    """Refuse a data set whose items are others when they are read again.

    Raises:
        DataError: naming the setting for what changes in training.
    """
    places = range(0, len(first), math.ceil(len(first) / _READ_TWICE))
    again = _from_pair(subject, *_from_items(subject, data, label, places))
    reads = (first.take(torch.tensor(places)), again)
    for at, one, other in zip(places, *(hashes(e.inputs, e.labels) for e in reads), strict=True):
        if one != other:
            raise DataError(
                f"{subject}: item {at} of your {type(data).__name__} must be the same when read "
                f"again, found another: draw nothing there, but in a function that data.augment "
                f"names."
            )


def _from_items(
    subject: str,
    data: Any,  # noqa: ANN401 - duck-typed
    label: str,
    places: Sequence[int] | None = None,
) -> tuple[Any, Any]:
    """Return inputs and labels out of a data set's items, or of those at some places.

    Items are (input, label), or dicts with a column of labels. An input may be a dict, or
    a tuple of arrays: several inputs of a model.
    """
    kind = type(data).__name__
    remedy = "pass a map-style data set, with __len__ and __getitem__."
    with blamed(DataError, f"{subject}: the length of its {kind}", remedy):
        count = len(data)
    items: list[Any] = []
    for at in range(count) if places is None else places:
        with blamed(DataError, f"{subject}: item {at} of your {kind}", "correct its __getitem__."):
            items.append(data[at])
    if not items:
        return (), ()
    if isinstance(items[0], Mapping):
        return _from_columns(
            subject, _by_key(subject, items), label or _class_label(data, items[0])
        )
    for at, item in enumerate(items):
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(
                f"{subject}: item {at} of its {kind} must be (input, label) or a dict, found "
                f"{described(item)}: return both from __getitem__."
            )
    inputs, labels = zip(*items, strict=True)
    y = _column(subject, "label", labels)
    if isinstance(inputs[0], Mapping):
        return _by_key(subject, inputs), y
    alike = all(isinstance(x, tuple) and len(x) == len(inputs[0]) for x in inputs)
    if alike and _are_arrays(inputs[0]):
        return tuple(
            _column(subject, "an input", values) for values in zip(*inputs, strict=True)
        ), y
    return _column(subject, "input", inputs), y


def _by_key(subject: str, items: Sequence[Any]) -> dict[str, Tensor | np.ndarray]:
    """Return the values of each key of the first as one array."""
    for at, item in enumerate(items):
        for name in items[0]:
            if not isinstance(item, Mapping) or name not in item:
                raise DataError(
                    f"{subject}: item {at} must have {name!r}, too, found {described(item)}: "
                    f"add it."
                )
    return {str(name): _column(subject, name, [item[name] for item in items]) for name in items[0]}


def _class_label(data: object, names: Mapping[Any, object]) -> str:
    """Return the column that a data set of Hugging Face calls a class, if it has one."""
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping) or any(name in LABELS for name in names):
        return ""
    classes = [str(name) for name, kind in features.items() if hasattr(kind, "names")]
    return classes[0] if len(classes) == 1 else ""


def _column(subject: str, what: object, values: Sequence[Any]) -> Tensor | np.ndarray:
    """Return one value of each item as one array."""
    arrays: list[Tensor | np.ndarray] = []
    for at, value in enumerate(values):
        with blamed(DataError, f"{subject}: {what} of item {at}", "make it numbers."):
            arrays.append(value.detach().cpu() if isinstance(value, Tensor) else np.asarray(value))
        if arrays[at].shape != arrays[0].shape:
            raise _several_shapes(f"{subject}: {what}", arrays[0].shape, arrays[at].shape)
    if all(isinstance(array, Tensor) for array in arrays):
        return torch.stack([torch.as_tensor(array) for array in arrays])
    return np.stack([np.asarray(array) for array in arrays])


def _from_pair(subject: str, inputs: Any, labels: object) -> Examples:  # noqa: ANN401 - many forms
    """Return inputs and labels as examples, after a look at both.

    Images of numpy get their channels second; those of torch lie as they are. A dict of
    arrays, or a tuple of arrays with as many rows each as there are labels, are several
    inputs of a model, which takes them by keyword or by position.

    Raises:
        DataError: they do not fit together, or hold what is no number.
    """
    y = _tensor(subject, "its labels", labels)
    y, layout = y if y.is_floating_point() else y.long(), None
    if y.is_floating_point() and y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)  # a column of numbers to predict
    names: tuple[str, ...] = ()
    if _is_table(inputs):
        inputs = _Table(_stacked(subject, _columns(inputs)), tuple(_columns(inputs)))
    if isinstance(inputs, _Table):
        x, names = inputs
    elif isinstance(inputs, Mapping) or (
        _are_arrays(inputs) and all(len(array) == len(y) for array in inputs)
    ):  # several inputs by name or by position, and no tuple of examples
        x, layout = _packed(subject, inputs)
    else:
        x = _input(subject, "its inputs", inputs)
        x = x.float() if x.dtype == torch.bool else x
    fits = y.dim() == 1 if y.is_floating_point() else y.dim() in (1, 2)
    if not x.dim() or not fits or len(x) != len(y):
        raise DataError(
            f"{subject} must bring inputs (examples, ...) and as many labels, whole (examples,) or "
            f"(examples, labels), or floating-point (examples,), found {tuple(x.shape)} and "
            f"{tuple(y.shape)} of {y.dtype}: "
            f"{'pass labels.squeeze()' if y.numel() == len(x) else 'correct its arrays'}."
        )
    if not y.is_floating_point() and ((y < 0) & ((y != MASKED) | (y.dim() == 1))).any():
        raise DataError(
            f"{subject}: its labels must be class numbers from 0, or of padding {MASKED}, found "
            f"{int(y.min())}: number the classes 0, 1, 2 ..."
        )
    if not len(y):
        raise DataError(f"{subject} must bring an example, found none: leave it out.")
    _check_finite(subject, "its inputs", x)
    _check_finite(subject, "its labels", y)
    return Examples(x, y, layout, names)


def _are_arrays(inputs: object) -> bool:
    """Say whether this is a tuple of arrays, none of which is a single number."""
    return (
        isinstance(inputs, tuple)
        and len(inputs) > 0
        and all(_is_array(array) and getattr(array, "ndim", 1) > 0 for array in inputs)
    )


def _packed(subject: str, inputs: Any) -> tuple[Tensor, Layout]:  # noqa: ANN401 - a dict or a tuple
    """Return several inputs as one tensor; those of a dict in the order of their names.

    Raises:
        DataError: there are not as many of each, or a number is too large to be kept.
    """
    by_name = isinstance(inputs, Mapping)
    pairs = sorted(_columns(inputs).items()) if by_name else [("", array) for array in inputs]
    parts = [_input(subject, f"its input {name!r}" if name else "an input", x) for name, x in pairs]
    shapes = [tuple(part.shape) for part in parts]
    if len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
        raise DataError(
            f"{subject} must bring as many of every input, found {shapes}: correct them."
        )
    for part in parts:
        if part.dtype == torch.int64 and ((part > LARGEST) | (part < -LARGEST)).any():
            raise DataError(
                f"{subject}: whole numbers of several inputs must lie within 2^53, found "
                f"{int(part.min())} to {int(part.max())}: number what they stand for 0, 1, 2 ..."
            )
    named = zip((name for name, _ in pairs), parts, strict=True)
    layout = Layout(tuple(Input(name, tuple(x.shape[1:]), x.dtype) for name, x in named))
    return layout.packed(parts), layout


def _check_finite(subject: str, what: str, values: Tensor) -> None:
    if values.is_floating_point() and not values.isfinite().all():
        raise DataError(
            f"{subject}: {what} must be finite, found NaN or infinity: fill in or drop it."
        )


def _input(subject: str, what: str, array: object) -> Tensor:
    """Return an array as a tensor, and uint8 images of numpy with their channels second.

    Raises:
        DataError: it is not clear where the channels are, or whether there are any.
    """
    x = _tensor(subject, what, array)
    if x.dtype != torch.uint8 or isinstance(array, Tensor):
        return x
    if x.dim() == 3:
        return x.unsqueeze(1)
    second, last = (x.dim() == 4 and x.shape[axis] in CHANNELS for axis in (1, -1))
    if second == last:
        raise DataError(
            f"{subject}: uint8 x must be images (n, h, w), or have 1 or 3 channels second or last, "
            f"found {tuple(x.shape)}: transpose it, or make features float32 and ids int64."
        )
    return x if second else x.permute(0, 3, 1, 2).contiguous()


def _several_shapes(what: str, one: Sequence[int], other: Sequence[int]) -> DataError:
    return DataError(
        f"{what} must be numbers of one shape, found {tuple(one)} and {tuple(other)}: crop or "
        f"resize images, pad sequences (torch.nn.utils.rnn.pad_sequence) and pass a mask as a "
        f"second input."
    )


def _shapes(values: object) -> list[tuple[int, ...]]:
    """Return the first two shapes of the parts of a list, or of an array of objects."""
    listed = isinstance(values, (list, tuple)) or getattr(values, "dtype", 0) == np.object_
    shapes = dict[tuple[int, ...], None]()
    for item in cast("Sequence[Any]", values) if listed else ():
        if isinstance(item, (list, tuple)):
            shapes[(len(cast("Sequence[Any]", item)),)] = None
        else:
            shapes[tuple(getattr(item, "shape", ()))] = None
        if len(shapes) > 1:
            break
    return list(shapes)


def _tensor(subject: str, what: str, array: object) -> Tensor:
    """Return an array as uint8, bool, int64 or float32, on the CPU.

    Raises:
        DataError: its values are no numbers, or do not make one array.
    """
    if isinstance(array, Tensor):
        dense = array.layout == torch.strided and not (array.is_nested or array.is_quantized)
        if array.is_complex() or not dense:
            kind = "a nested tensor" if array.is_nested else array.layout
            raise DataError(
                f"{subject}: {what} must be a dense tensor of real numbers, found {array.dtype} "
                f"and {kind}: convert it, with to_dense() or to_padded_tensor(0)."
            )
        values_on_cpu = array.detach().cpu()
        if values_on_cpu.is_floating_point():
            return values_on_cpu.float()
        return (
            values_on_cpu
            if values_on_cpu.dtype in (torch.uint8, torch.bool)
            else values_on_cpu.long()
        )
    shapes = _shapes(array)
    if len(shapes) > 1:
        raise _several_shapes(f"{subject}: {what}", *shapes)
    with blamed(DataError, f"{subject}: making one array of {what}", "give all one shape."):
        values = np.asarray(array)
        if values.dtype == object and values.ndim == 1:
            values = np.array(values.tolist())  # a column that may hold missing values
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"{subject}: {what} must be numbers, found {values.dtype}: number classes and words 0, "
            f"1, 2 ..., and fill in or remove what lacks."
        )
    whole = np.uint8 if values.dtype == np.uint8 else np.int64
    return torch.from_numpy(
        values.astype({"f": np.float32, "b": np.bool_}.get(values.dtype.kind, whole))
    )
