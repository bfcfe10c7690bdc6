"""A module that nobody trains: in no state dict, always in eval mode, and hashed."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from covey.errors import ModelError
from covey.features.one_norm import OneNorm
from covey.features.whitening import Whitened, Whitening
from covey.rng import Streams

__all__ = ["FrozenFeatures"]


class FrozenFeatures(nn.Module):
    """Features of a batch, one row each; none of its tensors is a parameter or a buffer.

    So a model that has it keeps, sends and averages its other parts alone.

    Attributes:
        name: of the feature map, as settings have it.
        options: of the feature map.
        source: SHA-256 of a user's own source; "" for what covey brings.
        tensors: SHA-256 of its tensors: filters or weights; "" if it has none.
        size: how many features there are (d).
    """

    def __init__(
        self, module: nn.Module, name: str, options: Mapping[str, Any], source: str
    ) -> None:
        super().__init__()
        self._held = (module.eval().requires_grad_(requires_grad=False),)
        self.name, self.options = name, dict(options)
        self.source, self.tensors = source, _tensor_hash(module)
        self.size = 0

    def at_norm(self, norm: float) -> "FrozenFeatures":
        """Return the same features, centred and scaled to this norm for each record."""
        return self._as(OneNorm(self._held[0], norm))

    def whitened(
        self, power: float, input_shape: tuple[int, ...], streams: Streams
    ) -> "FrozenFeatures":
        """Return the same features, whitened by images of noise (`Whitened`)."""
        key = f"{self.name} {self.options} {self.source} {self.tensors}"
        how = Whitening(self._held[0], key, power, input_shape, streams)
        return self._as(Whitened(how))

    def _as(self, module: nn.Module) -> "FrozenFeatures":
        found = FrozenFeatures(module, self.name, self.options, self.source)
        found.size = self.size
        return found

    def sized(self, input_shape: tuple[int, ...]) -> "FrozenFeatures":
        """Try it on two examples, and learn its size.

        Raises:
            ModelError: it does not return two rows of floating-point numbers.
        """
        zeros = torch.zeros(2, *input_shape)
        try:
            found = self(zeros)
        except ModelError as error:
            try:
                found = self(zeros.long())  # a map of ids, such as of words
            except ModelError:
                raise error from None
        if found.dim() != 2 or len(found) != 2 or not found.isfinite().all():
            raise ModelError(
                f"The feature map {self.name} must turn two examples of shape "
                f"{input_shape} into two rows of finite numbers, found shape "
                f"{tuple(found.shape)}. Flatten its outputs, and leave none without a "
                f"value where an example is constant."
            )
        self.size = found.shape[1]
        return self

    def forward(
        self, inputs: Shaped[Tensor, "batch ..."]
    ) -> Float[Tensor, "batch ..."]:
        """Return the features as float32; nothing is kept for a gradient."""
        try:
            with torch.no_grad():
                found: object = self._held[0](inputs.clone())  # a user's may write
        except Exception as error:  # foreign code may raise anything
            raise ModelError(
                f"The feature map {self.name} raised {type(error).__name__} on a batch of "
                f"shape {tuple(inputs.shape)}: {error}. Choose one that fits these inputs."
            ) from error
        if not isinstance(found, Tensor):
            raise ModelError(
                f"The feature map {self.name} must return one tensor, but it returned a "
                f"{type(found).__name__}. Return the features alone."
            )
        return found.float()

    def _apply(
        self,
        fn: Callable[[Tensor], Tensor],
        recurse: bool = True,  # noqa: FBT001, FBT002 - torch's own
    ) -> "FrozenFeatures":
        """Go along to where the model goes."""
        self._held[0]._apply(fn)
        return super()._apply(fn, recurse)


def _tensor_hash(module: nn.Module) -> str:
    """Return SHA-256 over all tensors, persistent or not; "" if there are none."""
    tensors = {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in (*module.named_parameters(), *module.named_buffers())
    }
    if not tensors:
        return ""
    return hashlib.sha256(safetensors.torch.save(tensors)).hexdigest()
