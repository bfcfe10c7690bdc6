"""Clients in parallel threads, on CPUs."""

from torch import nn

from covey.components.capability import Capability
from covey.components.section import Count
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.parallel import ParallelEngine, Precision
from covey.engine.protocol import Engine
from covey.engine.task import Task
from covey.portable import num_cores

__all__ = ["Parallel"]


class Parallel(EngineFactory):
    """One thread per core, or as many as `workers` says; the number changes no result."""

    workers: Count = 0
    precision: Precision = "float32"

    def build(
        self,
        module: nn.Module,
        task: Task,
        *,
        needs: frozenset[Capability] = NOTHING,  # noqa: ARG002 - it has all
    ) -> Engine:
        """Return the engine."""
        workers = self.workers or num_cores()
        return ParallelEngine(module, workers, self.precision, task)
