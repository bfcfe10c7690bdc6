"""Which clients train at once: few large chunks, of clients that take alike many steps."""

from collections.abc import Callable, Hashable, Mapping, Sequence

import torch
from torch import Tensor

from covey.engine.protocol import TrainingJob

__all__ = ["activation_bytes", "chunk_size", "client_bytes", "grouped"]

COPIES = 6
"""Of the trained weights: gradients, the same put together, a step's product, two numbers
of an optimizer, and the start that an objective looks at."""

USED = 0.8
"""Share of the free memory that is planned with: the rest is for what libraries take."""

LOOK_AHEAD = 8
"""Chunks whose clients are sorted by their steps; at most so many are held as results."""


def activation_bytes(
    forward: Callable[[], object], weights: Mapping[str, Tensor]
) -> int:
    """Return what a forward pass keeps for the backward pass, less the weights."""
    known = {_storage(value) for value in weights.values()}
    kept: dict[int, int] = {}

    def counted(tensor: Tensor) -> Tensor:
        kept[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(counted, lambda tensor: tensor):
        forward()
    return sum(size for place, size in kept.items() if place not in known)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def client_bytes(job: TrainingJob, trained: Sequence[str], activations: int) -> int:
    """Return what one client's training takes at its peak, by estimate.

    The model, `COPIES` of what is trained in it, what the objective remembers, the
    examples, and the activations of one batch twice: their gradients are as large.
    """
    model = sum(value.nbytes for value in job.start.values())
    weights = sum(job.start[name].nbytes for name in trained)
    remembered = sum(v.nbytes for kept in job.memory.values() for v in kept.values())
    examples = job.examples.inputs.nbytes + job.examples.labels.nbytes
    return model + COPIES * weights + remembered + examples + 2 * activations


def chunk_size(free: int, each: int) -> int:
    """Return how many clients of `each` bytes fit into the free ones, a power of two.

    So a little more or less that is free changes no chunk, and no rounding.
    """
    fitting = max(1, int(USED * free / max(each, 1)))
    return 1 << (fitting.bit_length() - 1)


def grouped(
    keys: Sequence[Hashable],
    steps: Sequence[int],
    size_of: Callable[[Sequence[int]], int],
) -> list[list[int]]:
    """Return the positions of the jobs of each chunk, those of most steps first.

    Args:
        keys: jobs of different keys never train together.
        steps: how many each job takes.
        size_of: how many of the jobs at these positions, all of one key, fit.
    """
    alike: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        alike.setdefault(key, []).append(position)
    found: list[list[int]] = []
    for positions in alike.values():
        size = size_of(positions)
        for window in _cut(positions, LOOK_AHEAD * size):
            by_length = sorted(window, key=lambda i: -steps[i])
            found += _cut(by_length, size)
    return found


def _cut(positions: list[int], size: int) -> list[list[int]]:
    return [positions[i : i + size] for i in range(0, len(positions), size)]
