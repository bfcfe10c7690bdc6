"""One client after another, to read and to compare with."""

from typing import ClassVar

from torch import nn

from covey.components.capability import Capability
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.protocol import Engine
from covey.engine.reference import ReferenceEngine
from covey.engine.task import Task

__all__ = ["Reference"]


class Reference(EngineFactory):
    """Plain PyTorch, with an optimizer object."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.FULL_PRECISION})

    def build(
        self,
        module: nn.Module,
        task: Task,
        *,
        needs: frozenset[Capability] = NOTHING,  # noqa: ARG002 - it has all
    ) -> Engine:
        """Return the engine."""
        return ReferenceEngine(module, task)
