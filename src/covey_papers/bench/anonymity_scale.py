"""What anonymity sets of many large updates take: processor time, memory, tightness."""

import math
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation import (
    AnonymityConfig,
    ClientUpdate,
    RecallableUpdates,
    Sets,
    anonymity_aggregator,
    mdav,
    noise_scale,
    public_random,
    sketcher,
)
from covey.events import AnonymitySetsFormed
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "SetsCost",
    "SetsSize",
    "SetsTightness",
    "peak_bytes",
    "sets_cost",
    "sets_cost_apart",
    "sets_tightness",
]

DIRECTIONS, NOISE = 8, 0.5
"""Updates lie along so many directions, and off them by so much as a share of that."""


@dataclass(frozen=True, slots=True)
class SetsSize:
    """A round of updates of one model.

    Attributes:
        window: bytes of updates that may be held; 0: sets are made over sketches.
    """

    clients: int
    parameters: int
    min_anonymity: int = 8
    window: float = 0.0


@dataclass(frozen=True, slots=True)
class SetsCost:
    """What the sets of a round took, and the next model from their representatives.

    Attributes:
        seconds: of the processor, without the making of updates.
        making_seconds: of the processor; the representatives' updates were made twice.
        wall_seconds: of the clock, without the making of updates.
        peak_bytes: that the process held at most, its libraries included.
        sets: how many there were.
        smallest, largest: members of a set.
    """

    size: SetsSize
    seconds: float
    making_seconds: float
    wall_seconds: float
    peak_bytes: int
    sets: int
    smallest: int
    largest: int


@dataclass(frozen=True, slots=True)
class SetsTightness:
    """Sums of squared distances to the sets' means, in all parameters, as ratios.

    Attributes:
        sketched: of sets over sketches, of many in parts, to those of MDAV on all updates
            at once.
        random: of sets that look at nothing, to the same.
    """

    size: SetsSize
    sketched: float
    random: float


@dataclass(slots=True)
class _Making:
    """Updates along a few directions, each with noise of its own, made one by one."""

    size: SetsSize
    seed: int
    seconds: float = 0.0
    wall_seconds: float = 0.0
    directions: Float[Tensor, "directions parameters"] = field(init=False)
    noise: Float[Tensor, " twice"] = field(init=False)

    def __post_init__(self) -> None:
        draws = Streams(self.seed).at("updates").generator()
        d = self.size.parameters
        self.directions = _normal(draws, DIRECTIONS, d) / math.sqrt(DIRECTIONS)
        # a client's is a part of it: two parts that start apart are nearly orthogonal
        self.noise = NOISE * _normal(draws, 2 * d)

    def of(self, i: int) -> Tensor:
        draws = Streams(self.seed).at("update", i).generator()
        d = self.size.parameters
        along = _normal(draws, DIRECTIONS)
        start = int(draws.integers(d))
        return along @ self.directions + self.noise[start : start + d]

    def made(self, indices: Sequence[int]) -> Iterator[ClientUpdate]:
        for i in indices:
            began, at = time.process_time(), time.perf_counter()
            update = self.of(i)
            self.seconds += time.process_time() - began
            self.wall_seconds += time.perf_counter() - at
            yield ClientUpdate(_handle(i), 0, {"weight": update}, 1.0)

    def again(self, handles: Sequence[Handle]) -> Iterator[ClientUpdate]:
        return self.made([int(each) for each in handles])


def sets_cost(size: SetsSize, seed: int = 0) -> SetsCost:
    """Hide a round's updates, which arrive one by one, and move the model."""
    making = _Making(size, seed)
    config = AnonymityConfig(
        min_anonymity=size.min_anonymity,
        partition="mdav",
        distance="l2",
        max_distance=0.0,
        noise=noise_scale("none", "l2", 0.0),
        window=size.window,
    )
    hide = anonymity_aggregator(config)
    model: Params = {"weight": torch.zeros(size.parameters)}
    began, at = time.process_time(), time.perf_counter()
    arriving = making.made(range(size.clients))
    updates = RecallableUpdates(arriving, making.again)
    merged = hide((model,), updates, Streams(seed).at("merge"))
    seconds, wall = time.process_time() - began, time.perf_counter() - at
    formed = next(e for e in merged.events if isinstance(e, AnonymitySetsFormed))
    members = [len(each) for each in formed.sets]
    return SetsCost(
        size=size,
        seconds=seconds - making.seconds,
        making_seconds=making.seconds,
        wall_seconds=wall - making.wall_seconds,
        peak_bytes=peak_bytes(),
        sets=len(members),
        smallest=min(members),
        largest=max(members),
    )


def sets_cost_apart(size: SetsSize, seed: int = 0) -> SetsCost:
    """Return the same of a process of its own, so that the peak is that of this round."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(sets_cost, size, seed).result()


def sets_tightness(size: SetsSize, seed: int = 0) -> SetsTightness:
    """Compare sets over sketches with those of MDAV, where all updates can be held."""
    making, streams, k = _Making(size, seed), Streams(seed), size.min_anonymity
    points = torch.empty(size.clients, size.parameters)
    for i in range(size.clients):
        points[i] = making.of(i)
    sketch = sketcher(size.parameters, streams.at("sketch").generator())
    sketched = mdav(torch.stack([sketch(each) for each in points]), k)
    blind = public_random(size.clients, k, streams.at("random").generator())
    exact = _spread(points, mdav(points, k, most=len(points)))
    return SetsTightness(
        size=size,
        sketched=_spread(points, sketched) / exact,
        random=_spread(points, blind) / exact,
    )


def _spread(points: Float[Tensor, "n d"], sets: Sets) -> float:
    """Return sum_c sum_{i in c} |p_i - mean of c|^2."""
    total = 0.0
    for each in sets:
        members = points[list(each)]
        total += float((members - members.mean(dim=0)).double().square().sum())
    return total


def _normal(draws: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(draws.standard_normal(shape, dtype=np.float32))


def _handle(i: int) -> Handle:
    return f"{i:09d}"


def peak_bytes() -> int:
    """Return the most memory that this process held; its parent's does not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError(
        "expected a line VmHWM in /proc/self/status, found none: measure on Linux"
    )
