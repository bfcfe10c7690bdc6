"""The engine of a federation on Flower: `engine.name = "flower"`."""

from typing import ClassVar

from torch import nn

from covey import Engine, EngineFactory, Task
from covey.base.components import Count
from covey.engine.kinds import Parallel


class FlowerNodes(EngineFactory):
    """Clients on machines of their own (`docs/guides/flower.md`), who keep their examples there.

    Attributes:
        workers: threads on each node; 0: one per core. Changes no result.
    """

    is_remote: ClassVar[bool] = True

    workers: Count = 0

    def build(self, module: nn.Module, task: Task, *, apart: bool = False) -> Engine:
        """Return the engine of one node, or of the server for its own measurements."""
        return Parallel(workers=self.workers).build(module, task, apart=apart)
