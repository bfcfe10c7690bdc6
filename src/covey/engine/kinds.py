"""The engines by name."""

from contextlib import suppress
from typing import ClassVar

import torch
from torch import nn

from covey.base.built_ins import component
from covey.base.components import Count
from covey.base.errors import ModelError
from covey.base.files import num_cores
from covey.engine.cpu import ParallelEngine, Precision, ReferenceEngine
from covey.engine.protocol import Engine, EngineFactory
from covey.engine.recipe import Recipe, Task
from covey.engine.vmap import VmapEngine

STACKED_LAYERS = (nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, nn.LogSoftmax)
"""Of what networks consist that train faster as one batched operation, even on a CPU."""

STACKED_NUMBERS = 2**17
"""Such a network's numbers, at most."""


@component("engine", "parallel")
class Parallel(EngineFactory):
    """One thread per core, or as many as `workers` says.

    Attributes:
        workers: threads; 0: one per core. Changes no result.
        precision: `float32`, or `bfloat16`: faster training on CPUs and GPUs that have it.
    """

    workers: Count = 0
    precision: Precision = "float32"

    def build(self, module: nn.Module, task: Task, *, per_client: bool = False) -> Engine:  # noqa: ARG002
        """Return the engine."""
        return ParallelEngine(module, self.workers or num_cores(), self.precision, task)


@component("engine", "reference")
class Reference(EngineFactory):
    """Plain PyTorch, with an optimizer object."""

    def build(self, module: nn.Module, task: Task, *, per_client: bool = False) -> Engine:  # noqa: ARG002
        """Return the engine."""
        return ReferenceEngine(module, task)


@component("engine", "vmap")
class Vmap(EngineFactory):
    """Clients trained many at once, on a GPU; those in one batch are rounded together.

    Attributes:
        precision: `float32`, or `bfloat16`: faster training on CPUs and GPUs that have it.
        chunk: clients at once; 0: as many as the card's free memory holds, by estimate.
    """

    batches_clients: ClassVar[bool] = True

    precision: Precision = "float32"
    chunk: Count = 0

    def build(self, module: nn.Module, task: Task, *, per_client: bool = False) -> Engine:  # noqa: ARG002
        """Return the engine."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return VmapEngine(module, device, self.chunk, task, self.precision)


@component("engine", "auto", default=True)
class Auto(Parallel):
    """`vmap` on a GPU that can do what is needed, else `parallel`.

    Attributes:
        chunk: clients at once on a GPU; 0: as many as its free memory holds, by estimate.
    """

    chunk: Count = 0

    def build(self, module: nn.Module, task: Task, *, per_client: bool = False) -> Engine:
        """Return the engine."""
        if torch.cuda.is_available() and not per_client:
            with suppress(ModelError):  # it has layers that cannot be batched
                return Vmap(precision=self.precision, chunk=self.chunk).build(module, task)
        return super().build(module, task)


def faster_for_many(engine: Engine, module: nn.Module | None, recipe: Recipe, task: Task) -> Engine:
    """Return what trains many clients of a small network at once; of another, the engine itself.

    Measured by `python -m benchmarks speed`, figures `references-...`. A user's own forward pass
    is not batched: nobody knows whether it can be.
    """
    if module is None or type(engine) is not ParallelEngine or engine.precision != "float32":
        return engine
    is_small = sum(weight.numel() for weight in module.parameters()) <= STACKED_NUMBERS
    known = [layer.forward for layer in STACKED_LAYERS]
    is_plain = all(type(layer).forward in known for layer in module.modules())
    if is_small and is_plain and not recipe.per_client:
        with suppress(ModelError):  # it has tensors that cannot be batched
            return VmapEngine(module, task=task)
    return engine
