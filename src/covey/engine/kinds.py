"""The engines by name."""

from typing import ClassVar

import torch
from torch import nn

from covey.base.errors import ModelError
from covey.base.files import num_cores
from covey.components.registry import Capability, Count
from covey.engine.cpu import ParallelEngine, Precision, ReferenceEngine
from covey.engine.protocol import NOTHING, Engine, EngineFactory
from covey.engine.ray import RayEngine
from covey.engine.recipe import Task
from covey.engine.vmap import VmapEngine, check_batchable


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
