"""Whatever is fastest on this machine."""

import torch
from torch import nn

from covey.components.capability import Capability
from covey.components.section import Count
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.kinds.parallel import Parallel
from covey.engine.kinds.vmap import Vmap
from covey.engine.protocol import Engine
from covey.engine.task import Task
from covey.engine.vmap import check_batchable
from covey.errors import ModelError

__all__ = ["Auto"]


class Auto(Parallel):
    """Clients batched on a GPU where there is one and it can do what is asked for.

    There, at most `chunk` train at once; 0: as many as its free memory holds.
    """

    chunk: Count = 0

    def build(
        self, module: nn.Module, task: Task, *, needs: frozenset[Capability] = NOTHING
    ) -> Engine:
        """Return the engine."""
        chosen: EngineFactory = Parallel(workers=self.workers, precision=self.precision)
        together = not needs & Vmap.rules_out and _batchable(module)
        if torch.cuda.is_available() and together:
            chosen = Vmap(precision=self.precision, chunk=self.chunk)
        return chosen.build(module, task, needs=needs)


def _batchable(module: nn.Module) -> bool:
    try:
        check_batchable(module)
    except ModelError:
        return False
    return True
