"""Whatever is fastest on this machine."""

import torch
from torch import nn

from covey.components.capability import Capability
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.kinds.parallel import Parallel
from covey.engine.kinds.vmap import Vmap
from covey.engine.protocol import Engine
from covey.engine.task import Task

__all__ = ["Auto"]


class Auto(Parallel):
    """Clients batched on a GPU where there is one and it can do what is asked for."""

    def build(
        self, module: nn.Module, task: Task, *, needs: frozenset[Capability] = NOTHING
    ) -> Engine:
        """Return the engine."""
        on_gpu = torch.cuda.is_available() and self.precision == "float32"
        chosen: EngineFactory = Parallel(workers=self.workers, precision=self.precision)
        if on_gpu and not needs & Vmap.rules_out:
            chosen = Vmap()
        return chosen.build(module, task, needs=needs)
