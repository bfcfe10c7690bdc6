"""Map-style data sets: of torch, of Hugging Face, or any that is like them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.data.arrays import LABELS, from_columns, from_pair
from covey.data.examples import Examples
from covey.errors import DataError

__all__ = ["from_items"]


def from_items(who: str, found: Any, label: str) -> Examples:  # noqa: ANN401 - duck-typed
    """Return all items of a data set, each read once, as examples.

    Items are (input, label), or dicts with a column of labels.

    Raises:
        DataError: naming the item that cannot be read, or is unlike the first.
    """
    items = _read(who, found)
    if isinstance(items[0], Mapping):
        names = list(items[0])
        columns = {
            str(name): _column(
                who,
                name,
                [_entry(who, at, each, name) for at, each in enumerate(items)],
            )
            for name in names
        }
        return from_columns(who, columns, label or _class_label(found, names))
    for at, each in enumerate(items):
        if not isinstance(each, (tuple, list)) or len(each) != 2:
            raise DataError(
                f"{who}: item {at} of its {type(found).__name__} must be (input, label) or "
                f"a dict, found {_told(each)}. Return both from __getitem__."
            )
    inputs, labels = zip(*items, strict=True)
    return from_pair(who, _column(who, "input", inputs), _column(who, "label", labels))


def _read(who: str, found: Any) -> list[Any]:  # noqa: ANN401 - duck-typed
    name = type(found).__name__
    try:
        count = len(found)
    except Exception as error:
        raise DataError(
            f"{who}: its {name} must know its length, but: {error}. Pass a map-style data "
            f"set, with __len__ and __getitem__."
        ) from error
    if not count:
        raise DataError(f"{who} must bring an example, found none. Leave it out.")
    items: list[Any] = []
    for at in range(count):
        try:
            items.append(found[at])
        except Exception as error:
            raise DataError(
                f"{who}: your data set {name} raised {type(error).__name__} at item {at}: "
                f"{error}. Correct its __getitem__."
            ) from error
    return items


def _entry(who: str, at: int, item: object, name: object) -> object:
    if not isinstance(item, Mapping) or name not in item:
        raise DataError(
            f"{who}: item {at} must have {name!r} like the first, found {_told(item)}. "
            f"Give every item the same keys."
        )
    return item[name]


def _class_label(found: object, names: Sequence[object]) -> str:
    """Return the column that a data set of Hugging Face calls a class, if it has one."""
    features = getattr(found, "features", None)
    if not isinstance(features, Mapping) or any(name in LABELS for name in names):
        return ""
    classes = [str(name) for name, kind in features.items() if hasattr(kind, "names")]
    return classes[0] if len(classes) == 1 else ""


def _column(who: str, what: object, values: Sequence[Any]) -> Tensor | np.ndarray:
    """Return one value of each item as one array."""
    arrays = [_array(who, what, at, value) for at, value in enumerate(values)]
    for at, each in enumerate(arrays):
        if each.shape != arrays[0].shape:
            raise DataError(
                f"{who}: {what} of item {at} must have the shape of the first, "
                f"{tuple(arrays[0].shape)}, found {tuple(each.shape)}. Bring all to one "
                f"shape: pad, crop or resize."
            )
    tensors = [each for each in arrays if isinstance(each, Tensor)]
    if len(tensors) == len(arrays):
        return torch.stack(tensors)
    return np.stack([np.asarray(each) for each in arrays])


def _array(who: str, what: object, at: int, value: Any) -> Tensor | np.ndarray:  # noqa: ANN401
    if isinstance(value, Tensor):
        return value.detach().cpu()
    try:
        return np.asarray(value)
    except Exception as error:
        raise DataError(
            f"{who}: {what} of item {at} must be numbers, but: {error}. Convert it."
        ) from error


def _told(found: object) -> str:
    if isinstance(found, (tuple, list)):
        return f"{len(found)} values"
    if isinstance(found, Mapping):
        return f"a dict with {', '.join(map(str, found))}"
    return f"a {type(found).__name__}"
