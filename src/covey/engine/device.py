"""What depends on where a tensor lives: the one place that asks for CUDA."""

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

__all__ = [
    "float32_exact",
    "free_memory",
    "joined_on",
    "out_of_memory",
    "release",
    "sent",
]


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that training may still take on a card; None: there is no card.

    What torch holds without using it counts as free.
    """
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + held


def release(device: torch.device) -> None:
    """Give back what nobody uses, after a failed attempt."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def out_of_memory(error: BaseException | None) -> bool:
    """Say whether a device's memory was too small, whatever errors tell of it."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__
    return False


def joined_on(device: torch.device, tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors in a row on a device: from pinned memory, without waiting."""
    first = tensors[0]
    rows = sum(len(each) for each in tensors)
    row = torch.empty(
        (rows, *first.shape[1:]), dtype=first.dtype, pin_memory=device.type == "cuda"
    )
    torch.cat(list(tensors), out=row)
    return sent(row, device)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting where it lies in pinned memory."""
    return tensor.to(device, non_blocking=tensor.is_pinned())


def float32_exact(device: torch.device) -> AbstractContextManager[object]:
    """Return a block in which a card's convolutions keep float32, and are repeatable.

    torch lets them round to 10 bits (TF32), which is no float32.
    """
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(
        enabled=True, deterministic=True, allow_tf32=False
    )
