"""How a client's inputs are changed in training, and nowhere else.

Quick to import, as what only reads settings needs no torch.
"""

from __future__ import annotations

import inspect
from threading import Lock
from typing import TYPE_CHECKING, Any

from covey.base.built_ins import component
from covey.base.components import Component, OwnFunction
from covey.base.errors import DataError, user_function

if TYPE_CHECKING:
    from torch import Tensor

    from covey.base.rng import Streams

_TORCHS_GENERATOR = Lock()


@component("augment", "none", default=True)
class Augment(Component):
    """Changes the inputs of a batch in training; by itself, nothing."""

    @property
    def changes(self) -> bool:
        """Whether anything is ever changed."""
        return type(self).changed is not Augment.changed

    def changed(self, inputs: Tensor, streams: Streams) -> Tensor:  # noqa: ARG002
        """Return a batch's inputs as the model is trained on them.

        Args:
            inputs: (batch, ...) of float32, images in [0, 1], as models see them.
            streams: the client's own in this step: what is drawn must come from them.
        """
        return inputs


class OwnAugment(Augment, OwnFunction):
    """A user's function of a batch of inputs, or of these and of torch's `generator`.

    One that takes no generator draws from torch's own, which is seeded for the call.
    """

    def changed(self, inputs: Tensor, streams: Streams) -> Tensor:
        """Return what the function says.

        Raises:
            DataError: it raised, or returned no inputs of this shape.
        """
        import torch

        function: Any = user_function("function data.augment", self.call, DataError)
        # the inputs may be the client's own memory
        if "generator" in inspect.signature(self.function).parameters:
            seed = int(streams.generator().integers(2**63))
            made = function(inputs.clone(), generator=torch.Generator().manual_seed(seed))
        else:
            with _TORCHS_GENERATOR, streams.lent_to_torch():  # all threads share it
                made = function(inputs.clone())
        kinds = [
            f"{tuple(images.shape)} of {images.dtype}"
            if isinstance(images, torch.Tensor)
            else type(images).__name__
            for images in (inputs, made)
        ]
        if kinds[0] == kinds[1] and made.isfinite().all():
            return made.detach()
        found = "NaN or infinity" if kinds[0] == kinds[1] else kinds[1]
        raise DataError(f"data.augment must return finite {kinds[0]}, found {found}: correct it.")
