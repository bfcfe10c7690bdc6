"""Solved heads held against what they may take: features and sums, and a choice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

from covey.engine import width_of
from covey.heads import WEIGHT_STEPS
from covey.rng import Streams
from covey_papers.bench.performance.comparison import Comparison, Limit, compared
from covey_papers.bench.performance.federation import Federation, Shape, images_of
from covey_papers.bench.performance.timing import Effort, clock_of

__all__ = ["features", "leave_out_choice"]

WITHIN = Limit(1, at_most=True)
FEATURES_SECONDS, CHOICE_SECONDS = 25, 10


def features(figure: str, effort: Effort) -> Comparison:
    """Return the time of the features and sums of 50,000 images, at d = 3,201."""
    shape = _shape((25,) * 4 if effort.quick else (250,) * 200, effort)
    data = images_of(shape, Streams(0))

    def seconds() -> float:
        run = Federation(shape, data, effort).run  # which knows no features yet
        records, (model,) = run.records, run.strategy.init(run.streams).clusters[:1]
        assert records is not None  # a linear head has features  # noqa: S101
        own = [(client.train, WEIGHT_STEPS) for client in run.population.clients]
        return _timed(lambda: records.sums(own, width_of(model)), effort)

    return _within(figure, seconds, FEATURES_SECONDS, effort)


def leave_out_choice(figure: str, effort: Effort) -> Comparison:
    """Return the time in which 1,000 clients choose among two heads without themselves.

    Heads are solved and features known, as they are after a round; what each head takes
    to be left by a client is in it.
    """
    shape = _shape((10,) * 10 if effort.quick else (50,) * 1_000, effort)
    federation = Federation(shape, images_of(shape, Streams(0)), effort)

    def seconds() -> float:
        federation.restart()
        federation.play()
        return _timed(federation.choose_again, effort)

    return _within(figure, seconds, CHOICE_SECONDS, effort)


def _shape(sizes: tuple[int, ...], effort: Effort) -> Shape:
    filters = {"filters": 4 if effort.quick else 100, "size": 7, "pool": 4}
    options: dict[str, Any] = {"features": "gabor", "feature_options": filters}
    return Shape(
        sizes,
        model="linear-head",
        settings={
            "model": {"options": options},
            "method": {"name": "solved", "options": {"initialisation": "random"}},
        },
    )


def _within(
    figure: str, seconds: Callable[[], float], most: float, effort: Effort
) -> Comparison:
    """Return the median of some measurements as a share of what it may be."""
    with _threads(effort.workers):
        found = [seconds() for _ in range(effort.repeats)]
    of = " of the processor" if effort.processor_time else ""
    told = f"{median(found):.3g} s{of}", f"{most} s"
    return compared(figure, told, [each / most for each in found], WITHIN)


def _timed(work: Callable[[], object], effort: Effort) -> float:
    clock = clock_of(effort)
    began = clock()
    work()
    return clock() - began


@contextmanager
def _threads(workers: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(workers)
    try:
        yield
    finally:
        torch.set_num_threads(before)
