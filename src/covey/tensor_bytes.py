"""The bytes of a safetensors file, piece by piece, without a second copy of the tensors."""

import json
import sys
from collections.abc import Iterator, Mapping

import safetensors.torch
import torch
from torch import Tensor

__all__ = ["safetensors_pieces"]

METADATA = "__metadata__"
ALIGNMENT = 8
"""A header is filled up with spaces to a multiple of so many bytes."""

SMALL = 2**20
"""Up to so many bytes, the library makes all of them at once: that is faster."""


def safetensors_pieces(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield what `safetensors.torch.save` returns, one tensor after the other.

    Tensors may share memory, lie anywhere and be in any layout; at most one of them is
    copied at a time. `metadata` of several keys has them in any order.
    """
    told = None if metadata is None else dict(metadata)
    size = sum(value.nbytes for value in tensors.values())
    if size <= SMALL or sys.byteorder == "big":
        apart = {name: _apart(value) for name, value in tensors.items()}
        yield safetensors.torch.save(apart, told)
        return
    # The library says in which order tensors stand and what their types are called.
    none = {name: torch.empty(0, dtype=v.dtype) for name, v in tensors.items()}
    written = json.loads(safetensors.torch.save(none, told)[ALIGNMENT:])
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


def _apart(value: Tensor) -> Tensor:
    """Return a copy on the CPU: safetensors refuses tensors that share memory."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)
