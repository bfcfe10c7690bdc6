"""One module that trains client after client: its parameters are set and copied."""

from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch
from torch import (
    Tensor,
    _foreach_copy_,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from covey.base.names import Params
from covey.base.params import FlatParams, flat, places_of
from covey.engine.descent import trainable
from covey.engine.dropout import SeededDropout, has_dropout
from covey.engine.protocol import TrainingJob
from covey.models.build import exchanged_params, set_params


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
        self._shapes = {
            name: parameter.shape for name, parameter in (self._parameters or {}).items()
        }
        self._places = places_of(self._parameters) if self._parameters else None

    def begin_at(self, start: Params) -> None:
        """Set what is trained, and the mode of training.

        Raises:
            RuntimeError: `start` is of another model.
        """
        self.train()
        self.take(start)

    def take(self, params: Params) -> None:
        """Set what is trained.

        Raises:
            RuntimeError: it is of another model.
        """
        parameters = self._parameters
        if parameters is None or self._shapes != {
            name: value.shape for name, value in params.items()
        }:
            set_params(self.module, params)
        else:
            with torch.no_grad():
                _foreach_copy_(list(parameters.values()), [params[name] for name in parameters])

    def params(self) -> Params:
        """Return a copy of what the module is by now."""
        parameters = self._parameters
        if parameters is not None and self._places is not None:
            places, length = self._places
            copy = FlatParams.at(self.weights[0].detach().new_zeros(length), places)
            with torch.no_grad():
                _foreach_copy_(list(copy.values()), list(parameters.values()))
            return copy
        state = exchanged_params(self.module) if parameters is None else parameters
        return {
            name: value.detach().clone(memory_format=torch.contiguous_format)
            for name, value in state.items()
        }

    def train(self) -> None:
        """Set the mode of training."""
        if not self.module.training:
            self.module.train()

    @cached_property
    def flat(self) -> FlatParams | None:
        """The model as one vector, of which the module's parameters are views from now on.

        None: it is large, more than its parameters, or in a layout of its own.
        """
        parameters = self._parameters or {}
        apart = len({value.data_ptr() for value in parameters.values()}) == len(parameters)
        model = (
            flat({name: value.detach() for name, value in parameters.items()}) if apart else None
        )
        if not isinstance(model, FlatParams):
            return None
        if any(view.stride() != parameters[name].stride() for name, view in model.items()):
            return None  # as those of convolutions, which go by it
        for name, view in model.items():
            parameters[name].data = view
        return model

    def dropout(self, job: TrainingJob) -> AbstractContextManager[object]:
        """Return a block, to enter around each forward pass, that draws the job's masks."""
        return SeededDropout(self.module, job) if self._has_dropout else nullcontext()


def _whole_state(module: nn.Module) -> dict[str, Tensor] | None:
    """Return a module's trained parameters, if they are a whole model; None: they are not.

    A buffer may be replaced while a model runs, and a module may save other tensors than
    it has: only parameters that are saved as they are can be set and read directly.
    """
    own = module.named_parameters(remove_duplicate=False)
    parameters: dict[str, Tensor] = {name: value for name, value in own if value.requires_grad}
    saved = exchanged_params(module)
    is_whole = list(saved) == list(parameters) and all(
        saved[name].data_ptr() == value.data_ptr() for name, value in parameters.items()
    )
    return parameters if is_whole else None
