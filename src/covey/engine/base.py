"""What every choice of `engine.name` is."""

from torch import nn

from covey.components.component import Component
from covey.engine.protocol import Engine
from covey.engine.task import Task

__all__ = ["EngineFactory"]


class EngineFactory(Component):
    """A way to run clients' training: write `build`, which makes an `Engine`.

    One whose clients are on machines of their own rules out `Capability.CLIENT_DATA`; what
    it builds is the engine of one such client.
    """

    def build(
        self, module: nn.Module, task: Task, *, example_gradients: bool
    ) -> Engine:
        """Return the engine.

        Args:
            module: the architecture.
            task: what the model is asked for.
            example_gradients: whether the gradient of every single example is needed.
        """
        raise NotImplementedError
