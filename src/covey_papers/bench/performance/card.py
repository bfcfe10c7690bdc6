"""Rounds on a card, as a fraction of what it multiplies matrices at."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from covey.data import to_floats
from covey.rng import Streams
from covey_papers.bench.performance.comparison import Comparison, compared, unknown
from covey_papers.bench.performance.federation import (
    Federation,
    Images,
    Shape,
    images_of,
)
from covey_papers.bench.performance.local_training import module_of
from covey_papers.bench.performance.shapes import sized
from covey_papers.bench.performance.timing import Effort, alternated, rate

__all__ = ["NO_CARD", "OnCard", "fractions_of", "product_flops", "round_flops"]

Precision = Literal["float32", "bfloat16"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

NO_CARD = "no GPU here"
WIDTH, QUICK_WIDTH = 8192, 256
PRODUCTS = 20
CLOCK = time.perf_counter


@dataclass(frozen=True, slots=True)
class OnCard:
    """Rounds of a federation with the vmap engine on the card.

    The ratio is a fraction: floating-point operations of the round's passes per second,
    over those of large matrix products in the same precision.
    """

    shape: Shape
    precision: Precision

    def __call__(self, figure: str, effort: Effort) -> Comparison:
        """Return the row; without a card, one that says so."""
        if not torch.cuda.is_available():
            return unknown(figure, "-", None, NO_CARD)
        return self.measured(figure, effort, torch.device("cuda"))

    def measured(self, figure: str, effort: Effort, device: torch.device) -> Comparison:
        """Return the row of the device that the vmap engine runs on."""
        engine = {"name": "vmap", "precision": self.precision}
        settings = {**self.shape.settings, "engine": engine}
        shape = sized(replace(self.shape, settings=settings), effort)
        data = images_of(shape, Streams(0))
        needed = round_flops(module_of(shape), shape, data[0])
        width = QUICK_WIDTH if effort.quick else WIDTH
        multiply = products(width, DTYPES[self.precision], device)
        federation = Federation(shape, data, effort)
        timed = alternated(federation.play, multiply, effort, CLOCK)
        reached = [needed / each for each in timed.covey]
        possible = [product_flops(width) / each for each in timed.peer]
        told = (
            f"{rate(shape.images, timed.covey, 'images')}, {_tera(reached)}",
            f"matrix products {_tera(possible)}",
        )
        return compared(figure, told, fractions_of(reached, possible), None)


def round_flops(module: nn.Module, shape: Shape, images: Images) -> float:
    """Return the floating-point operations of a round's forward and backward passes.

    Products and sums of convolutions and linear layers, as torch counts them in one step
    on the CPU; every image takes as many.
    """
    inputs, labels = (each[: shape.batch] for each in images)
    with FlopCounterMode(display=False) as counter:
        outputs = module.train()(to_floats(inputs))
        nn.functional.cross_entropy(outputs, labels).backward()
    return counter.get_total_flops() / len(labels) * shape.images


def products(
    width: int, dtype: torch.dtype, device: torch.device
) -> Callable[[], None]:
    """Return a piece of work: `PRODUCTS` products of two square matrices, to their end."""
    draws = Streams(0).at("matrices").generator()
    left, right = (
        torch.from_numpy(draws.standard_normal((width, width), dtype="f4")).to(
            device, dtype
        )
        for _ in range(2)
    )

    def multiply() -> None:
        product = left
        for _ in range(PRODUCTS):
            product = left @ right
        product[0, 0].item()  # waits for the device

    return multiply


def product_flops(width: int) -> float:
    """Return the floating-point operations of that work: 2 n^3 of each product."""
    return float(PRODUCTS * 2 * width**3)


def fractions_of(reached: Sequence[float], possible: Sequence[float]) -> list[float]:
    """Return which part of a rate was reached, pair by pair."""
    return [some / all_ for some, all_ in zip(reached, possible, strict=True)]


def _tera(flops: Sequence[float]) -> str:
    """Return operations per second, by the median, in words."""
    return f"{median(flops) / 1e12:.3g} TFLOP/s"
