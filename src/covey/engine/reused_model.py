"""A module that trains client after client: what it costs to begin again, kept small."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import (
    Tensor,
    _foreach_copy_,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from covey.engine.descent import trainable
from covey.engine.dropout import has_dropout, seeded_dropout
from covey.engine.protocol import TrainingJob
from covey.types import Params

__all__ = ["ReusedModel"]


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

    def begin_at(self, start: Params) -> None:
        """Set what is trained, and the mode of training.

        Raises:
            RuntimeError: `start` is of another model.
        """
        if not self.module.training:
            self.module.train()
        held = self._parameters
        if held is None or _shapes(held) != _shapes(start):
            self.module.load_state_dict(start)
        else:
            with torch.no_grad():
                _foreach_copy_(list(held.values()), [start[name] for name in held])

    def params(self) -> Params:
        """Return a copy of what the module is by now."""
        held = self._parameters
        state = self.module.state_dict() if held is None else held
        return {
            name: value.detach().clone(memory_format=torch.contiguous_format)
            for name, value in state.items()
        }

    def dropout(self, job: TrainingJob) -> AbstractContextManager[object]:
        """Return a block, to enter around each forward pass, that draws the job's masks."""
        return seeded_dropout(self.module, job) if self._has_dropout else nullcontext()


def _whole_state(module: nn.Module) -> dict[str, Tensor] | None:
    """Return a module's parameters, if they are all of its state; None: they are not.

    A buffer may be replaced while a model runs, and a module may save other tensors than
    it has: only parameters that are saved as they are can be set and read directly.
    """
    held: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    saved = module.state_dict()
    is_whole = list(saved) == list(held) and all(
        saved[name].data_ptr() == value.data_ptr() for name, value in held.items()
    )
    return held if is_whole else None


def _shapes(params: Params) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in params.items()}
