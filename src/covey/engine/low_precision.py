"""Passes in bfloat16 where clients train as one tensor."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

__all__ = ["multiplying_in"]

_NORMS = frozenset(
    {
        nn.functional.batch_norm,
        nn.functional.group_norm,
        nn.functional.instance_norm,
        nn.functional.layer_norm,
    }
)


@contextmanager
def multiplying_in(precision: str, device: torch.device) -> Iterator[None]:
    """Let what is called inside multiply in this precision; parameters stay float32."""
    if precision == "float32":
        yield
        return
    # A cache of cast weights would outlive the step, and know nothing of `vmap`.
    with (
        torch.autocast(device.type, torch.bfloat16, cache_enabled=False),
        _FloatNorms(),
    ):
        yield


class _FloatNorms(TorchFunctionMode):
    """Normalises in float32, as autocast does: under `vmap` it meets mixed types."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func not in _NORMS or not args[0].is_floating_point():
            return func(*args, **kwargs)
        inputs = args[0]
        return func(inputs.float(), *args[1:], **kwargs).to(inputs.dtype)
