"""Arrays, tensors and columns of anybody's making, as tensors that covey computes with."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from covey.data.examples import Examples
from covey.data.npz import images_of
from covey.errors import DataError

__all__ = [
    "LABELS",
    "from_columns",
    "from_pair",
    "is_array",
    "is_frame",
    "kind_of",
    "tensor_of",
]

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


def kind_of(inputs: Shaped[Tensor, "examples ..."]) -> str:
    """Return what inputs are, in words."""
    if inputs.dtype == torch.uint8:
        return "uint8 images"
    return "floating-point" if inputs.is_floating_point() else "whole numbers"


def tensor_of(who: str, what: str, found: object) -> Tensor:
    """Return an array as uint8, int64 or float32, on the CPU.

    Raises:
        DataError: its values are no numbers, or do not make one array.
    """
    if isinstance(found, Tensor):
        return _converted(who, what, found)
    try:
        array = np.asarray(found)
        if array.dtype == object and array.ndim == 1:
            array = np.array(array.tolist())  # a column that may hold missing values
    except Exception as error:  # ragged lists, and whatever foreign arrays raise
        raise DataError(
            f"{who}: {what} must make one array of numbers, but {error}. Give all "
            f"examples one shape."
        ) from error
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{who}: {what} must be numbers, found {array.dtype}. Number classes and "
            f"words 0, 1, 2 ..., and fill in or remove what is missing."
        )
    return torch.from_numpy(array.astype(_plain(array.dtype)))


def _plain(dtype: np.dtype[Any]) -> type[np.generic]:
    if dtype.kind == "f":
        return np.float32
    if dtype.kind == "b":
        return np.bool_
    return np.uint8 if dtype == np.uint8 else np.int64


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

    Images of numpy get their channels second; those of torch lie as they are.

    Raises:
        DataError: they do not fit together, or hold what is no number.
    """
    if is_frame(inputs):
        x = _stacked(who, _columns(inputs))
    else:
        x = tensor_of(who, "its inputs", inputs)
        if x.dtype == torch.uint8 and not isinstance(inputs, Tensor):
            x = images_of(x.numpy(), who)
    y = tensor_of(who, "its labels", labels)
    return _fitting(
        who,
        x.float() if x.dtype == torch.bool else x,
        y if y.is_floating_point() else y.long(),
    )


def _fitting(who: str, inputs: Tensor, labels: Tensor) -> Examples:
    if not inputs.dim() or labels.dim() not in (1, 2) or len(inputs) != len(labels):
        raise DataError(
            f"{who} must bring inputs (examples, ...) and as many labels: whole numbers "
            f"(examples,) or (examples, labels), or floating-point numbers (examples,), "
            f"found {tuple(inputs.shape)} and {tuple(labels.shape)} of {labels.dtype}. "
            f"Correct its tensors."
        )
    if not len(labels):
        raise DataError(f"{who} must bring an example, found none. Leave it out.")
    for what, found in (("inputs", inputs), ("labels", labels)):
        if found.is_floating_point() and not found.isfinite().all():
            raise DataError(
                f"{who}: its {what} must be finite, found NaN or infinity. Fill in or "
                f"remove what is missing."
            )
    return Examples(inputs, labels)


def from_columns(who: str, found: object, label: str) -> Examples:
    """Return a table's columns as examples: one holds the labels, the others the inputs.

    A table of whole numbers throughout gives whole numbers; a single column that is no
    plain list of numbers, images for example, is the inputs by itself.

    Raises:
        DataError: the column of labels, or of inputs, cannot be told.
    """
    columns = _columns(found)
    named = label_of(who, list(columns), label)
    labels = columns.pop(named)
    if not columns:
        raise DataError(
            f"{who} has a column {named!r} of labels and no other. Add columns of inputs."
        )
    if len(columns) == 1 and not is_frame(found):
        (inputs,) = columns.values()
        return from_pair(who, inputs, labels)
    return from_pair(who, _stacked(who, columns), labels)


def label_of(who: str, columns: list[str], label: str) -> str:
    """Return which column holds the labels.

    Raises:
        DataError: none does, or several may.
    """
    found = [each for each in ((label,) if label else LABELS) if each in columns]
    if len(found) == 1:
        return found[0]
    wanted = f"the column data.label = {label!r}" if label else "one column of labels"
    told = f"{len(found)}: {', '.join(found)}" if found else "none"
    raise DataError(
        f"{who} must have {wanted}, called {', '.join(LABELS)} if data.label names no "
        f"other, found {told} among {', '.join(columns[:8])}. Set data.label to its name."
    )


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
                f"of inputs and one of labels."
            )
    wholes = [
        not each.is_floating_point() and each.dtype != torch.bool for each in sides
    ]
    dtype = torch.int64 if all(wholes) else torch.float32
    return torch.stack([each.to(dtype) for each in sides], dim=1)
