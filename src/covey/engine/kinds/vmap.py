"""Many clients' steps as one batched operation, for a GPU."""

from typing import ClassVar

import torch
from torch import nn

from covey.components.capability import Capability
from covey.components.section import Count
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.parallel import Precision
from covey.engine.protocol import Engine
from covey.engine.task import Task
from covey.engine.vmap import VmapEngine

__all__ = ["Vmap"]


class Vmap(EngineFactory):
    """Clients that train in one batch are rounded together.

    At most `chunk` at once; 0: as many as the card's free memory holds, by estimate.
    """

    rules_out: ClassVar[frozenset[Capability]] = VmapEngine.rules_out

    precision: Precision = "float32"
    chunk: Count = 0

    def build(
        self,
        module: nn.Module,
        task: Task,
        *,
        needs: frozenset[Capability] = NOTHING,  # noqa: ARG002 - claimed to be there
    ) -> Engine:
        """Return the engine."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return VmapEngine(module, device, self.chunk, task, self.precision)
