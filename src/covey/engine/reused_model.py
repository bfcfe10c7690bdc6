"""One module that trains client after client: its parameters are set and copied."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch
from jaxtyping import Float
from torch import (
    Tensor,
    _foreach_copy_,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from covey.base.names import Params
from covey.base.params import FlatParams, Places, places_of
from covey.engine.descent import trainable
from covey.engine.dropout import SeededDropout, has_dropout
from covey.engine.protocol import TrainingJob
from covey.models.build import exchanged_params, set_params


class ModelVector:
    """A module's parameters as views of one vector: setting and copying them is one operation.

    Args:
        parameters: whose data become views, in the layout that they have.
        places: of the parameters in the vector.
        length: of the vector.
    """

    def __init__(self, parameters: Mapping[str, Tensor], places: Places, length: int) -> None:
        self._places = places
        self._strides = {name: value.stride() for name, value in parameters.items()}
        self._is_flat = all(value.is_contiguous() for value in parameters.values())
        self.values = next(iter(parameters.values())).detach().new_zeros(length)
        for name, view in self._views(self.values).items():
            view.copy_(parameters[name].detach())
            parameters[name].data = view

    def _views(self, vector: Tensor) -> dict[str, Tensor]:
        return {
            name: vector.as_strided(shape, self._strides[name], first)
            for name, (shape, first) in self._places.items()
        }

    def of(self, params: Params) -> Tensor:
        """Return a model as such a vector.

        Raises:
            RuntimeError: it is another kind of model.
        """
        vector = torch.zeros_like(self.values)
        if params.keys() != self._places.keys():
            raise RuntimeError("A model must have the parameters of the module, found others.")
        for name, view in self._views(vector).items():
            view.copy_(params[name].view(view.shape))
        return vector

    def models(self, vectors: Sequence[Float[Tensor, " numbers"]]) -> list[Params]:
        """Return the models that such vectors are, which share their memory."""
        if not vectors:
            return []
        rows = torch.stack([*vectors])
        if not self._is_flat:  # an image's channels lie elsewhere in a module's memory
            strided = rows
            rows = torch.zeros_like(strided)
            for to, values in zip(self._columns(rows), self._strided(strided), strict=True):
                to.copy_(values)
        entries = zip(*(each.unbind() for each in self._columns(rows)), strict=True)
        return [
            FlatParams(vector, self._places, dict(zip(self._places, each, strict=True)))
            for vector, each in zip(rows.unbind(), entries, strict=True)
        ]

    def _columns(self, rows: Tensor) -> list[Tensor]:
        """Return every parameter of all rows, as models have them."""
        return [
            rows[:, first : first + shape.numel()].unflatten(1, shape) if shape else rows[:, first]
            for shape, first in self._places.values()
        ]

    def _strided(self, rows: Tensor) -> list[Tensor]:
        """Return the same, as the module has them."""
        count, length = rows.shape
        return [
            rows.as_strided((count, *shape), (length, *self._strides[name]), first)
            for name, (shape, first) in self._places.items()
        ]


class ReusedModel:
    """One module, whose parameters begin anew with every job.

    Walking through a module takes longer than a step of a tiny model, so what does not
    change from job to job is looked up once.

    Attributes:
        weights: what is trained, in the module's order.
        names: theirs.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        own = trainable(module)
        self.names, self.weights = list(own), list[Tensor](own.values())
        self._has_dropout = has_dropout(module)
        self._parameters = _whole_state(module)
        self._shapes = {name: each.shape for name, each in (self._parameters or {}).items()}
        self._places = places_of(self._parameters) if self._parameters else None

    def begin_at(self, start: Params) -> None:
        """Set what is trained, and the mode of training.

        Raises:
            RuntimeError: `start` is of another model.
        """
        self.train()
        held = self._parameters
        if held is None or self._shapes != {name: value.shape for name, value in start.items()}:
            set_params(self.module, start)
        else:
            with torch.no_grad():
                _foreach_copy_(list(held.values()), [start[name] for name in held])

    def params(self) -> Params:
        """Return a copy of what the module is by now."""
        held = self._parameters
        if held is not None and self._places is not None:
            places, length = self._places
            copy = FlatParams.at(self.weights[0].detach().new_zeros(length), places)
            with torch.no_grad():
                _foreach_copy_(list(copy.values()), list(held.values()))
            return copy
        state = exchanged_params(self.module) if held is None else held
        return {
            name: value.detach().clone(memory_format=torch.contiguous_format)
            for name, value in state.items()
        }

    def train(self) -> None:
        """Set the mode of training."""
        if not self.module.training:
            self.module.train()

    @cached_property
    def vector(self) -> "ModelVector | None":
        """The model as one vector, from now on; None: it is large, or more than parameters."""
        held = self._parameters
        if held is None or self._places is None:
            return None
        apart = len({value.data_ptr() for value in held.values()}) == len(held)
        dense = all(map(_is_dense, held.values()))
        return ModelVector(held, *self._places) if apart and dense else None

    def dropout(self, job: TrainingJob) -> AbstractContextManager[object]:
        """Return a block, to enter around each forward pass, that draws the job's masks."""
        return SeededDropout(self.module, job) if self._has_dropout else nullcontext()


def _whole_state(module: nn.Module) -> dict[str, Tensor] | None:
    """Return a module's trained parameters, if they are a whole model; None: they are not.

    A buffer may be replaced while a model runs, and a module may save other tensors than
    it has: only parameters that are saved as they are can be set and read directly.
    """
    own = module.named_parameters(remove_duplicate=False)
    held: dict[str, Tensor] = {name: value for name, value in own if value.requires_grad}
    saved = exchanged_params(module)
    is_whole = list(saved) == list(held) and all(
        saved[name].data_ptr() == value.data_ptr() for name, value in held.items()
    )
    return held if is_whole else None


def _is_dense(value: Tensor) -> bool:
    images = torch.channels_last if value.dim() == 4 else torch.contiguous_format
    return value.is_contiguous() or value.is_contiguous(memory_format=images)
