"""What every choice of `engine.name` is."""

from torch import nn

from covey.components.capability import Capability
from covey.components.component import Component
from covey.engine.protocol import Engine
from covey.engine.task import Task

__all__ = ["NOTHING", "EngineFactory"]

NOTHING: frozenset[Capability] = frozenset()


class EngineFactory(Component):
    """A way to run clients' training: write `build`, which makes an `Engine`.

    One whose clients are on machines of their own rules out `Capability.CLIENT_DATA`; what
    it builds is the engine of one such client.
    """

    def build(
        self, module: nn.Module, task: Task, *, needs: frozenset[Capability] = NOTHING
    ) -> Engine:
        """Return the engine.

        Args:
            module: the architecture.
            task: what the model is asked for.
            needs: what clients' training needs of it.
        """
        raise NotImplementedError
