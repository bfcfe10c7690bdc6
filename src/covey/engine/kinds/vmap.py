"""Many clients' steps as one batched operation, for a GPU."""

from typing import ClassVar

import torch
from torch import nn

from covey.components.capability import Capability
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.protocol import Engine
from covey.engine.task import Task
from covey.engine.vmap import VmapEngine

__all__ = ["Vmap"]


class Vmap(EngineFactory):
    """Clients that train in one batch are rounded together."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.FULL_PRECISION})
    rules_out: ClassVar[frozenset[Capability]] = VmapEngine.rules_out

    def build(
        self,
        module: nn.Module,
        task: Task,
        *,
        needs: frozenset[Capability] = NOTHING,  # noqa: ARG002 - claimed to be there
    ) -> Engine:
        """Return the engine."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return VmapEngine(module, device, task=task)
