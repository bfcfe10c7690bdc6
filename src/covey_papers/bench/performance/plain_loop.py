"""The loop that covey is held against: the same model and steps, and no federation.

One model per thread goes over its share of the clients' images, client after client,
without going back to a common start; images are floats beforehand.
"""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import (
    Tensor,
    _foreach_add_,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)

from covey.data import to_floats
from covey.rng import Streams
from covey_papers.bench.performance.federation import Images, Shape
from covey_papers.bench.performance.timing import Effort

__all__ = ["MakeOptimizer", "PlainLoop"]

MakeOptimizer = Callable[[list[Tensor], float], Any]


class PlainLoop:
    """Plain PyTorch on as many threads as covey has, one core each.

    Args:
        module: what is trained; a copy of it for each thread.
        shape: of the federation.
        data: each client's images.
        precision: of the forward and the backward pass.
        optimizer: makes one, once per thread; None: plain SGD, as one addition to all
            weights, which is faster than torch's own object.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what is trained, how, and on what
        self,
        module: nn.Module,
        shape: Shape,
        data: Sequence[Images],
        effort: Effort,
        precision: Literal["float32", "bfloat16"] = "float32",
        optimizer: MakeOptimizer | None = None,
    ) -> None:
        self._shape, self._precision = shape, precision
        self._pool = ThreadPoolExecutor(effort.workers)
        floats = [(to_floats(x), y) for x, y in data[: shape.cohort or None]]
        self._shares = [floats[i :: effort.workers] for i in range(effort.workers)]
        self._modules = [
            copy.deepcopy(module).to(
                memory_format=torch.channels_last  # pyright: ignore[reportCallIssue]
            )
            for _ in self._shares
        ]
        self._steps = [self._step(optimizer, each) for each in self._modules]
        self._orders = [
            Streams(0).at("order", i).generator() for i in range(effort.workers)
        ]

    def play(self) -> None:
        """Train on every image of a round."""
        threads = torch.get_num_threads()
        parts = zip(self._modules, self._steps, self._shares, self._orders, strict=True)
        try:
            list(self._pool.map(lambda part: self._train(*part), parts))
        finally:
            # a thread's own setting is the default of every later thread
            torch.set_num_threads(threads)

    def _train(
        self,
        module: nn.Module,
        step: Callable[[Tensor], None],
        share: Sequence[tuple[Tensor, Tensor]],
        order: np.random.Generator,
    ) -> None:
        torch.set_num_threads(1)
        low = self._precision == "bfloat16"
        for inputs, labels in share:
            for _ in range(self._shape.epochs):
                for batch in self._batches(len(labels), order):
                    with torch.autocast("cpu", enabled=low, cache_enabled=False):
                        outputs = module(inputs[batch])
                        loss = nn.functional.cross_entropy(outputs, labels[batch])
                    step(loss)

    def _step(
        self, optimizer: MakeOptimizer | None, module: nn.Module
    ) -> Callable[[Tensor], None]:
        """Return what moves the weights along a loss's gradient."""
        weights: list[Tensor] = [*module.parameters()]
        rate = self._shape.learning_rate
        if optimizer is None:
            return partial(_descend, weights, rate)
        made = optimizer(weights, rate)

        def step(loss: Tensor) -> None:
            made.zero_grad()
            loss.backward()
            made.step()

        return step

    def _batches(self, n: int, order: np.random.Generator) -> Sequence[Tensor]:
        return torch.from_numpy(order.permutation(n)).split(self._shape.batch)


def _descend(weights: list[Tensor], rate: float, loss: Tensor) -> None:
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        _foreach_add_(weights, gradients, alpha=-rate)
