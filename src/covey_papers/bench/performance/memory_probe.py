"""`python -m covey_papers.bench.performance.memory_probe`: the peak memory of rounds.

Reads a `MemoryCase` as JSON, and prints bytes. In a process of its own: a peak is the
highest that a process ever had.
"""

import json
import resource
import sys
from dataclasses import asdict, dataclass

import torch
from torch import nn

from covey.rng import Streams
from covey_papers.bench.performance.federation import Federation, Shape, images_of
from covey_papers.bench.performance.timing import Effort

__all__ = ["MemoryCase", "MemoryFound"]

ROUNDS = 2
KILO = 1 if sys.platform == "darwin" else 1024
"""What `ru_maxrss` counts in."""


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """What is trained.

    Attributes:
        hidden: neurons of a large layer; 0: the MNIST CNN.
    """

    clients: int
    images: int
    hidden: int
    workers: int
    clusters: int


@dataclass(frozen=True, slots=True)
class MemoryFound:
    """Bytes.

    Attributes:
        start: the peak of a process that has played a round of next to nothing.
        peak: the peak after the rounds.
        data: images and labels of all clients.
        model: one model.
    """

    start: int
    peak: int
    data: int
    model: int


def _peak() -> int:
    return KILO * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _shape(case: MemoryCase) -> Shape:
    def large() -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, case.hidden),
            nn.ReLU(),
            nn.Linear(case.hidden, 10),
        )

    method = {"name": "ifca", "num_clusters": case.clusters}
    return Shape(
        (case.images,) * case.clients,
        model=large if case.hidden else "mnist-cnn",
        settings={"method": method} if case.clusters > 1 else {},
    )


def _warm_up() -> None:
    """Load what is loaded with the first round, convolution, product and gradient."""
    nobody = Shape((10, 10), (1, 1, 5), "linear")
    Federation(nobody, images_of(nobody, Streams(0)), Effort(workers=1)).play()
    module = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(4, 2))
    module(torch.zeros(2, 1, 4, 4)).sum().backward()


def _measured(case: MemoryCase) -> MemoryFound:
    _warm_up()
    effort, shape = Effort(workers=case.workers), _shape(case)
    start = _peak()
    federation = Federation(shape, images_of(shape, Streams(0)), effort)
    for _ in range(ROUNDS):
        federation.play()
    return MemoryFound(
        start=start,
        peak=_peak(),
        data=federation.data_bytes,
        model=federation.model_bytes,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_measured(MemoryCase(**json.loads(sys.argv[1]))))))  # noqa: T201
