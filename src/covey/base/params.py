"""Arithmetic on models seen as points of a vector space, and their bytes in a file.

Integer buffers (BatchNorm's `num_batches_tracked`) are counters, not coordinates: they
take no part in distances, and nor do BatchNorm's running statistics. Boolean buffers are
masks: no arithmetic changes them.
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

from covey.base.names import Params

METADATA = "__metadata__"
ALIGNMENT = 8
"""A header is filled up with spaces to a multiple of so many bytes."""

SMALL = 2**20
"""Up to so many bytes, the library makes all of them at once: that is faster."""


STATISTICS = ("running_mean", "running_var")
"""BatchNorm's buffers: averaged like parameters, and no coordinates of a model."""

AT_ONCE = 2**20

_ALIGNED = 16
"""Numbers in 64 bytes, of four each: entries of a vector lie as they do by themselves."""

_FLAT = 2**20
"""A model of more numbers is no vector: its operations take far longer than to begin them."""


def safetensors_pieces(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield what `safetensors.torch.save` returns, one tensor after the other.

    Tensors may share memory, lie anywhere and be in any layout; at most one of them is
    copied at a time. `metadata` of several keys has them in any order.
    """
    keys = None if metadata is None else dict(metadata)
    size = sum(value.nbytes for value in tensors.values())
    if size <= SMALL or sys.byteorder == "big":
        apart = {  # safetensors refuses tensors that share memory
            name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, value in tensors.items()
        }
        yield safetensors.torch.save(apart, keys)
        return
    # The library says in which order tensors stand and what their types are called.
    none = {name: torch.empty(0, dtype=v.dtype) for name, v in tensors.items()}
    written = json.loads(safetensors.torch.save(none, keys)[ALIGNMENT:])
    place = 0
    for name, entry in written.items():
        if name != METADATA:
            end = place + tensors[name].nbytes
            entry["shape"] = list(tensors[name].shape)
            entry["data_offsets"] = [place, end]
            place = end
    header = json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    yield len(header).to_bytes(ALIGNMENT, "little") + header
    for name in written:
        if name != METADATA:
            value = tensors[name].detach().cpu().contiguous()
            yield value.reshape(-1).view(torch.uint8).numpy().data


class FlatParams(dict[str, Tensor]):
    """A model whose entries are views of one vector.

    What is done with all numbers alike is then one operation: for a small model an operation
    takes as long as a hundred numbers do.

    Attributes:
        vector: all entries, one after the other; each begins at a multiple of `_ALIGNED`, and
            what is between them is 0.
        places: the shape and the beginning of every entry.
    """

    def __init__(self, vector: Tensor, places: "Places", entries: Mapping[str, Tensor]) -> None:
        super().__init__(entries)
        self.vector, self.places = vector, places

    @classmethod
    def at(cls, vector: Tensor, places: "Places") -> "FlatParams":
        """Return the model that a vector is."""
        entries = {
            name: vector[first : first + math.prod(shape)].view(shape)
            for name, (shape, first) in places.items()
        }
        return cls(vector, places, entries)

    def __reduce__(self) -> tuple[Any, ...]:  # copies are views of a vector, too
        return FlatParams.at, (self.vector, self.places)

    def _refused(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("A model's entries stay views of one vector: change `dict(params)`.")

    __setitem__ = __delitem__ = __ior__ = _refused  # pyright: ignore[reportAssignmentType]
    clear = pop = popitem = setdefault = update = _refused  # pyright: ignore[reportAssignmentType]

    def is_like(self, other: "FlatParams") -> bool:
        """Say whether another model's vector has the same entries at the same places."""
        return self.places is other.places or self.places == other.places

    def _with_vector(self, vector: Tensor) -> "FlatParams":
        """Return a model of the same shapes."""
        return FlatParams.at(vector, self.places)

    def laid_out(self, other: Params) -> "FlatParams":
        """Return a copy of another model with its entries at these places.

        Raises:
            RuntimeError: it is another kind of model.
        """
        if wrong := misfit(self, other):
            raise RuntimeError(f"A model must have the parameters of the module: {wrong}.")
        return _filled(self._with_vector(torch.zeros_like(self.vector)), other)

    def unstacked(self, vectors: Sequence[Float[Tensor, " numbers"]]) -> "Iterator[FlatParams]":
        """Yield the models that such vectors are, which share their memory."""
        if not vectors:
            return
        rows = torch.stack([*vectors])
        columns = [
            rows[:, first : first + shape.numel()].unflatten(1, shape) if shape else rows[:, first]
            for shape, first in self.places.values()
        ]
        entries = zip(*(column.unbind() for column in columns), strict=True)
        for vector, entry in zip(rows.unbind(), entries, strict=True):
            yield FlatParams(vector, self.places, dict(zip(self.places, entry, strict=True)))


Places = Mapping[str, tuple[torch.Size, int]]


def places_of(params: Params) -> tuple[Places, int] | None:
    """Return where a model's entries lie in one vector, and its length; None: it is none.

    Small models alone are, whose numbers are all of one floating-point type.
    """
    kinds = {(value.dtype, value.is_floating_point()) for value in params.values()}
    if len(kinds) != 1 or not next(iter(kinds))[1]:
        return None
    places, length = dict[str, tuple[torch.Size, int]](), 0
    for name, value in params.items():
        places[name] = value.shape, length
        length += -(-value.numel() // _ALIGNED) * _ALIGNED
    return (places, length) if length <= _FLAT else None


def flat(params: Params) -> Params:
    """Return a copy of a model as one vector, or else the model itself."""
    if (layout := places_of(params)) is None:
        return params
    places, length = layout
    return _filled(FlatParams.at(next(iter(params.values())).new_zeros(length), places), params)


def _filled(model: FlatParams, numbers: Params) -> FlatParams:
    for name, value in model.items():  # a model from a file or a message has another order
        value.copy_(numbers[name])
    return model


def subtract(left: Params, right: Params) -> Params:
    """Return `left - right`, entry by entry; covey's update is `local - start`."""
    return {n: v if v.dtype == torch.bool else v - right[n] for n, v in left.items()}


def subtracted_in_place(left: Params, right: Params) -> Params:
    """Return the same, in the memory of `left`, which must have no other holder."""
    if isinstance(left, FlatParams) and isinstance(right, FlatParams) and left.is_like(right):
        left.vector.sub_(right.vector)
        return left
    for name, value in left.items():
        if value.dtype != torch.bool:
            value.sub_(right[name])
    return left


def add(left: Params, right: Params) -> Params:
    """Return `left + right`, entry by entry."""
    return {n: v if v.dtype == torch.bool else v + right[n] for n, v in left.items()}


def add_scaled(total: dict[str, Tensor], params: Params, factor: float) -> None:
    """Add `factor * params` to a total, in its memory; counters take their maximum."""
    if isinstance(total, FlatParams) and isinstance(params, FlatParams) and total.is_like(params):
        total.vector.add_(params.vector, alpha=factor)
        return
    for name, value in params.items():
        if value.is_floating_point():
            total[name].add_(value, alpha=factor)
        else:
            total[name] = torch.maximum(total[name], value)


def scale(params: Params, factor: float) -> Params:
    """Return `factor * params`; counters keep their value."""
    if isinstance(params, FlatParams):
        return params._with_vector(params.vector * factor)
    return {
        name: value * factor if value.is_floating_point() else value
        for name, value in params.items()
    }


def flatten(params: Params) -> Float[Tensor, " coordinates"]:
    """Return the floating-point entries as one vector, in name order."""
    parts = [params[name].reshape(-1) for name in sorted(params)]
    return torch.cat([part for part in parts if part.is_floating_point()])


def norm(params: Params) -> float:
    """Return the L2 norm of what training moves, infinite where it diverged."""
    length = float(flatten(trained(params)).double().norm())
    return length if math.isfinite(length) else math.inf


def not_finite(params: Params) -> str:
    """Return the first entry, in name order, that holds NaN or infinity; "" if none.

    A finite sum has finite entries, in one pass. A sum may overflow: then every entry is looked
    at, in parts, whose tests are copies.
    """
    if isinstance(params, FlatParams) and math.isfinite(params.vector.sum()):
        return ""
    for name, value in sorted(params.items()):
        if not value.is_floating_point() or math.isfinite(value.sum()):
            continue
        if not all(bool(part.isfinite().all()) for part in value.reshape(-1).split(AT_ONCE)):
            return name
    return ""


def misfit(expected: Params, found: object) -> str:
    """Return where names or shapes differ, three of them at most; "" if nowhere.

    It reads "expected ..., found ...", without a full stop.
    """
    if not isinstance(found, Mapping):
        return f"expected tensors by name, found a {type(found).__name__}"
    actual = cast("Mapping[Any, object]", found)
    pairs = {
        name: (_shape(expected, name), _shape(actual, name))
        for name in sorted({*expected, *actual}, key=str)
    }
    differences = [
        f"expected {wanted} for {name}, found {had}"
        for name, (wanted, had) in pairs.items()
        if wanted != had
    ]
    more = len(differences) - 3
    rest = f"; {more} more" if more > 0 else ""
    return "; ".join(differences[:3]) + rest


def _shape(params: Mapping[Any, object], name: object) -> str:
    if name not in params:
        return "nothing"
    value = params[name]
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"shape {tuple(value.shape)}"


def trained(params: Params) -> Params:
    """Return the entries that training moves along a gradient."""
    return {
        name: value
        for name, value in params.items()
        if value.is_floating_point() and name.rpartition(".")[2] not in STATISTICS
    }


def named(models: Sequence[Params]) -> dict[str, Tensor]:
    """Return several models as one flat mapping: `cluster/index/name`."""
    return {
        f"cluster/{index}/{name}": value
        for index, model in enumerate(models)
        for name, value in model.items()
    }


def unprefixed(tensors: Params) -> tuple[Params, ...]:
    """Undo `named`: the models by index; other tensors are left out."""
    models: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        head, _, rest = key.partition("/")
        if head == "cluster":
            index, _, name = rest.partition("/")
            models.setdefault(int(index), {})[name] = value
    return tuple(models[index] for index in sorted(models))


def model_hash(models: Sequence[Params]) -> str:
    """Return SHA-256 over the models' safetensors bytes, as hex."""
    digest = hashlib.sha256()
    for piece in safetensors_pieces(named(models)):
        digest.update(piece)
    return digest.hexdigest()
