"""The loop that covey is held against: the same model and steps, and no federation.

One model per thread goes over its share of the clients' images, client after client,
without going back to a common start; images are floats beforehand.
"""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from covey.data import to_floats
from covey.rng import Streams
from covey_papers.bench.performance.federation import Images, Shape
from covey_papers.bench.performance.timing import Effort

__all__ = ["MakeOptimizer", "PlainLoop", "sgd"]

MakeOptimizer = Callable[[list[nn.Parameter], float], Any]


def sgd(weights: list[nn.Parameter], learning_rate: float) -> torch.optim.SGD:
    """Return torch's own, as fast as it goes."""
    return torch.optim.SGD(weights, learning_rate, fused=True)


class PlainLoop:
    """Plain PyTorch on as many threads as covey has, one core each.

    Args:
        module: what is trained; a copy of it for each thread.
        shape: of the federation.
        data: each client's images.
        precision: of the forward and the backward pass.
        optimizer: makes one, once per thread; default: plain SGD.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what is trained, how, and on what
        self,
        module: nn.Module,
        shape: Shape,
        data: Sequence[Images],
        effort: Effort,
        precision: Literal["float32", "bfloat16"] = "float32",
        optimizer: MakeOptimizer = sgd,
    ) -> None:
        self._shape, self._precision = shape, precision
        threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            effort.workers, initializer=torch.set_num_threads, initargs=(1,)
        )
        list(self._pool.map(lambda _: None, range(effort.workers)))
        torch.set_num_threads(threads)  # a thread's setting is every later thread's
        floats = [(to_floats(x), y) for x, y in data[: shape.cohort or None]]
        self._shares = [floats[i :: effort.workers] for i in range(effort.workers)]
        self._modules = [
            copy.deepcopy(module).to(
                memory_format=torch.channels_last  # pyright: ignore[reportCallIssue]
            )
            for _ in self._shares
        ]
        rate = shape.learning_rate
        self._optimizers = [
            optimizer(list(each.parameters()), rate) for each in self._modules
        ]
        self._orders = [
            Streams(0).at("order", i).generator() for i in range(effort.workers)
        ]

    def play(self) -> None:
        """Train on every image of a round."""
        done = [
            self._pool.submit(self._train, *each)
            for each in zip(
                self._modules, self._optimizers, self._shares, self._orders, strict=True
            )
        ]
        for each in done:
            each.result()

    def _train(
        self,
        module: nn.Module,
        optimizer: Any,  # noqa: ANN401 - torch's own type has untyped parts
        share: Sequence[tuple[Tensor, Tensor]],
        order: np.random.Generator,
    ) -> None:
        low = self._precision == "bfloat16"
        for inputs, labels in share:
            for _ in range(self._shape.epochs):
                for batch in self._batches(len(labels), order):
                    optimizer.zero_grad()
                    with torch.autocast("cpu", enabled=low, cache_enabled=False):
                        outputs = module(inputs[batch])
                        loss = nn.functional.cross_entropy(outputs, labels[batch])
                    loss.backward()
                    optimizer.step()

    def _batches(self, n: int, order: np.random.Generator) -> Sequence[Tensor]:
        return torch.from_numpy(order.permutation(n)).split(self._shape.batch)
