"""Whole rounds against the same steps in a bare loop, and in other simulators."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor, nn

from covey.models import build_model
from covey.rng import Streams
from covey_papers.bench.performance.comparison import (
    Comparison,
    Limit,
    compared,
    unknown,
)
from covey_papers.bench.performance.federation import Federation, Shape, images_of
from covey_papers.bench.performance.peers import (
    NOT_INSTALLED,
    PeerError,
    PeerLoop,
    Program,
    python_of_peers,
    write_task,
)
from covey_papers.bench.performance.plain_loop import MakeOptimizer, PlainLoop
from covey_papers.bench.performance.shapes import sized, with_precision
from covey_papers.bench.performance.timing import Effort, alternated, rate

__all__ = ["AgainstLoop", "AgainstPeer", "PerClient", "adamw", "module_of"]

Precision = Literal["float32", "bfloat16"]
CLOCK = time.perf_counter


def adamw(weights: list[Tensor], learning_rate: float) -> Any:  # noqa: ANN401
    """Return torch's own, as fast as it goes."""
    return torch.optim.AdamW(weights, learning_rate, fused=True)


def module_of(shape: Shape) -> nn.Sequential:
    """Return the module that a shape trains."""
    streams = Streams(0).at("architecture")
    if isinstance(shape.model, str):
        made = build_model(shape.model, shape.image, 10, streams, "multiclass", {})
    else:
        with streams.lent_to_torch():
            made = shape.model()
    assert isinstance(made, nn.Sequential)  # noqa: S101 - all of these are
    return made


@dataclass(frozen=True, slots=True)
class AgainstLoop:
    """Rounds of a federation against the plain loop, in images per second."""

    shape: Shape
    limit: Limit | None
    precision: Precision = "float32"
    optimizer: MakeOptimizer | None = None

    def __call__(self, figure: str, effort: Effort) -> Comparison:
        """Return the row."""
        shape = with_precision(sized(self.shape, effort), self.precision)
        data = images_of(shape, Streams(0))
        loop = PlainLoop(
            module_of(shape), shape, data, effort, self.precision, self.optimizer
        )
        timed = alternated(Federation(shape, data, effort).play, loop.play, effort)
        told = (
            rate(shape.images, timed.covey, "images"),
            "bare loop " + rate(shape.images, timed.peer, "images"),
        )
        return compared(figure, told, timed.speeds, self.limit)


@dataclass(frozen=True, slots=True)
class AgainstPeer:
    """Rounds of a federation against those of another simulator, by the clock."""

    shape: Shape
    name: str
    program: Program
    limit: Limit | None
    precision: Precision = "float32"

    def __call__(self, figure: str, effort: Effort) -> Comparison:
        """Return the row; without the other, or where it stops, one that says so."""
        python = python_of_peers(effort.peers)
        if python is None:
            return unknown(figure, "-", self.limit, f"{self.name} {NOT_INSTALLED}")
        shape = with_precision(sized(self.shape, effort), self.precision)
        data = images_of(shape, Streams(0))
        with TemporaryDirectory() as folder:
            task = Path(folder) / "task.pt"
            write_task(task, module_of(shape), shape, data, self.precision)
            federation = Federation(shape, data, effort)
            try:
                with PeerLoop(python, self.program, task, effort.workers) as peer:
                    timed = alternated(federation.play, peer.play, effort, CLOCK)
            except PeerError as error:
                return unknown(figure, "-", self.limit, f"{self.name} stopped: {error}")
        told = (
            rate(shape.images, timed.covey, "images"),
            f"{self.name} " + rate(shape.images, timed.peer, "images"),
        )
        return compared(figure, told, timed.speeds, self.limit)


@dataclass(frozen=True, slots=True)
class PerClient:
    """What a client costs a round beside its steps, in microseconds."""

    shape: Shape
    limit: Limit

    def __call__(self, figure: str, effort: Effort) -> Comparison:
        """Return the row; the limit is for what is above the plain loop."""
        shape = sized(self.shape, effort)
        data = images_of(shape, Streams(0))
        loop = PlainLoop(module_of(shape), shape, data, effort)
        timed = alternated(Federation(shape, data, effort).play, loop.play, effort)
        each = 1e6 / len(shape.sizes)
        ours, bare = (each * median(part) for part in (timed.covey, timed.peer))
        told = f"{ours:,.0f} microseconds", f"bare loop {bare:,.0f} microseconds"
        return compared(figure, told, timed.durations, self.limit, ours - bare)
