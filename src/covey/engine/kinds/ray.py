"""Clients on the nodes of a Ray cluster."""

from torch import nn

from covey.components.capability import Capability
from covey.components.section import Count
from covey.engine.base import NOTHING, EngineFactory
from covey.engine.on_ray.engine import RayEngine
from covey.engine.parallel import Precision
from covey.engine.protocol import Engine
from covey.engine.task import Task

__all__ = ["Ray"]


class Ray(EngineFactory):
    """The parallel engine's loop on every node: `workers` threads on each.

    Attributes:
        address: of the cluster, 'auto' or 'host:port'; "": `RAY_ADDRESS`, else one that is
            started on this machine. Changes no result.
    """

    workers: Count = 0
    precision: Precision = "float32"
    address: str = ""

    def build(
        self,
        module: nn.Module,
        task: Task,
        *,
        needs: frozenset[Capability] = NOTHING,  # noqa: ARG002 - it has all
    ) -> Engine:
        """Return the engine."""
        return RayEngine(module, self.workers, self.precision, task, self.address)
