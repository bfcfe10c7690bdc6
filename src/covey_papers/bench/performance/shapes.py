"""What is trained in the figures of speed."""

from dataclasses import replace
from typing import Any

from torch import nn

from covey_papers.bench.performance.federation import Shape
from covey_papers.bench.performance.timing import Effort

__all__ = [
    "ADAMW",
    "BLAZEFL",
    "IFCA",
    "LENET",
    "MANY",
    "MANY_STACKED",
    "MNIST",
    "PFL_CIFAR",
    "VGG",
    "sized",
    "with_precision",
]


def _lenet_62k() -> nn.Module:
    """Return the LeNet of 62,006 parameters that small CIFAR-10 benchmarks take."""
    return nn.Sequential(
        nn.Conv2d(3, 6, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


MNIST = Shape((250,) * 200)
"""The federation of the IFCA-MIR paper's MNIST runs."""

IFCA = replace(
    MNIST,
    settings={"method": {"name": "ifca", "num_clusters": 2, "select_examples": 25}},
)
ADAMW = replace(
    MNIST,
    sizes=(250,) * 40,
    learning_rate=1e-3,
    settings={"train": {"optimizer": "adamw"}},
)
LENET = Shape((1200,) * 10, model="lenet5")
VGG = Shape((50,) * 8, (3, 32, 32), "vgg")
PFL_CIFAR = Shape((50,) * 1000, (3, 32, 32), "femnist-cnn", batch=10, cohort=50)
"""pfl-research's CIFAR-10 benchmark: a small network of two convolutions."""

BLAZEFL = Shape((500,) * 100, (3, 32, 32), _lenet_62k, batch=50, epochs=5)
"""BlazeFL's: everybody trains five epochs in every round."""

MANY = Shape((10,) * 10_000, (1, 1, 5), "linear", batch=10)
"""Clients that have next to nothing to do: 60 parameters, one step."""

MANY_STACKED = replace(
    MANY, settings={"engine": {"name": "vmap", "options": {"chunk": 256}}}
)
"""The same, whose steps are operations on stacks of clients: what fits into a cache."""


def sized(shape: Shape, effort: Effort) -> Shape:
    """Return a shape, or its small version."""
    if not effort.quick:
        return shape
    few = min(len(shape.sizes), 3 * effort.workers)
    least = min(shape.sizes[0], 2 * shape.batch)
    return replace(shape, sizes=(least,) * few, cohort=few if shape.cohort else 0)


def with_precision(shape: Shape, precision: str) -> Shape:
    """Return a shape that multiplies in this precision."""
    engine: dict[str, Any] = {"precision": precision}
    return replace(shape, settings={**shape.settings, "engine": engine})
