"""Clients on machines of their own, reached through a Flower server."""

from typing import ClassVar

from torch import nn

from covey.components.capability import Capability
from covey.components.section import Count
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.kinds.parallel import Parallel
from covey.engine.protocol import Engine
from covey.engine.task import Task

__all__ = ["FlowerNodes"]


class FlowerNodes(EngineFactory):
    """Clients keep their examples, losses and groups to themselves."""

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.EXCLUSIVE_CLASSES, Capability.FULL_PRECISION}
    )
    rules_out: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.ALL_LOSSES,
            Capability.CLIENT_DATA,
            Capability.CLUSTER_ISOLATION,
            Capability.EXAMPLE_COUNTS,
            Capability.KNOWN_GROUPS,
            Capability.KNOWN_POPULATION,
            Capability.SERVER_DATA,
            Capability.SIMULATED_CLIENTS,
            Capability.STORED_UPDATES,
        }
    )

    workers: Count = 0

    def build(
        self, module: nn.Module, task: Task, *, needs: frozenset[Capability] = NOTHING
    ) -> Engine:
        """Return the engine of one node, or of the server for its own measurements."""
        inner = Parallel(workers=self.workers)
        return inner.build(module, task, needs=needs)
