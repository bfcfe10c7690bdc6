"""Two pieces of work, timed in turn: what slows one slows the other."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from covey.portable import num_cores
from covey_papers.bench.performance.comparison import Timed

__all__ = ["Effort", "Work", "alternated", "clock_of", "rate"]

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a bench measures.

    Attributes:
        quick: small versions: to see that they work, not what they say.
        repeats: pairs of each figure.
        workers: threads of covey, and of each loop it is compared with.
        processor_time: compare seconds of the processor, not of the clock, where both
            sides run in this process: for machines that others use.
        peers: the environment of other simulators, if there is one.
    """

    quick: bool = False
    repeats: int = 5
    workers: int = field(default_factory=num_cores)
    processor_time: bool = False
    peers: Path = Path(".venv-peers")


def clock_of(effort: Effort) -> Callable[[], float]:
    """Return what seconds are read from."""
    return time.process_time if effort.processor_time else time.perf_counter


def alternated(
    covey: Work, peer: Work, effort: Effort, clock: Callable[[], float] | None = None
) -> Timed:
    """Time both `repeats` times in turn, after one of each that does not count.

    Every other pair begins with the peer, so that neither is always the first.
    """
    clock = clock or clock_of(effort)
    covey()
    peer()
    gc.collect()
    seconds: dict[Work, list[float]] = {covey: [], peer: []}
    for repeat in range(effort.repeats):
        for work in (covey, peer)[:: -1 if repeat % 2 else 1]:
            seconds[work].append(_seconds(work, clock))
    return Timed(tuple(seconds[covey]), tuple(seconds[peer]))


def _seconds(work: Work, clock: Callable[[], float]) -> float:
    began = clock()
    work()
    return clock() - began


def rate(amount: float, seconds: tuple[float, ...], unit: str) -> str:
    """Return an amount per second, by the median, in words."""
    return f"{amount / median(seconds):,.0f} {unit}/s"
