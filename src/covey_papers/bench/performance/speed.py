"""The figures of `covey bench speed`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from covey_papers.bench.performance import shapes
from covey_papers.bench.performance.card import OnCard
from covey_papers.bench.performance.comparison import Comparison, Limit
from covey_papers.bench.performance.local_training import (
    AgainstLoop,
    AgainstPeer,
    PerClient,
    adamw,
)
from covey_papers.bench.performance.solved import features, leave_out_choice
from covey_papers.bench.performance.timing import Effort
from covey_papers.bench.performance.uneven import uneven_clients

__all__ = ["SPEED", "Measure"]

Measure = Callable[[str, Effort], Comparison]
"""Measures the figure of this name."""

PFL, FLOWER = "pfl-research", "Flower's simulation"
ALIKE = Limit(0.85)
PER_CLIENT = Limit(50, at_most=True, unit="microseconds")

SPEED: Mapping[str, Measure] = MappingProxyType(
    {
        "mnist-float32": AgainstLoop(shapes.MNIST, Limit(0.92)),
        "mnist-bfloat16": AgainstLoop(shapes.MNIST, Limit(0.9), "bfloat16"),
        "mnist-ifca": AgainstLoop(shapes.IFCA, None),
        "lenet5": AgainstLoop(shapes.LENET, ALIKE),
        "vgg": AgainstLoop(shapes.VGG, ALIKE),
        "adamw": AgainstLoop(shapes.ADAMW, ALIKE, optimizer=adamw),
        "pfl-cifar10": AgainstLoop(shapes.PFL_CIFAR, ALIKE),
        "blazefl": AgainstLoop(shapes.BLAZEFL, ALIKE),
        "uneven-clients": uneven_clients,
        "many-clients": PerClient(shapes.MANY, PER_CLIENT),
        "many-clients-vmap": PerClient(shapes.MANY_STACKED, PER_CLIENT),
        "vmap": OnCard(shapes.MNIST, "bfloat16"),
        "features": features,
        "leave-out-choice": leave_out_choice,
        "mnist-float32-pfl": AgainstPeer(shapes.MNIST, PFL, "pfl_fedavg.py", None),
        "mnist-bfloat16-pfl": AgainstPeer(
            shapes.MNIST, PFL, "pfl_fedavg.py", Limit(3), "bfloat16"
        ),
        "pfl-cifar10-pfl": AgainstPeer(shapes.PFL_CIFAR, PFL, "pfl_fedavg.py", None),
        "blazefl-flower": AgainstPeer(shapes.BLAZEFL, FLOWER, "flower_fedavg.py", None),
    }
)
"""What is measured, by name; a figure is a function of its name and the effort."""
