"""Whatever is fastest on this machine."""

import torch
from torch import nn

from covey.engine.base import EngineFactory
from covey.engine.kinds.parallel import Parallel
from covey.engine.kinds.vmap import Vmap
from covey.engine.protocol import Engine
from covey.engine.task import Task

__all__ = ["Auto"]


class Auto(Parallel):
    """Clients batched on a GPU where there is one and it can do what is asked for."""

    def build(
        self, module: nn.Module, task: Task, *, example_gradients: bool
    ) -> Engine:
        """Return the engine."""
        on_gpu = torch.cuda.is_available() and self.precision == "float32"
        chosen: EngineFactory = Parallel(workers=self.workers, precision=self.precision)
        if on_gpu and not example_gradients:
            chosen = Vmap()
        return chosen.build(module, task, example_gradients=example_gradients)
