"""Clients of very different sizes: how long a round takes against the least it can."""

import time
from dataclasses import replace
from statistics import median

from covey.rng import Streams
from covey_papers.bench.performance.comparison import Comparison, Limit, compared
from covey_papers.bench.performance.federation import Federation, Shape, images_of
from covey_papers.bench.performance.timing import Effort, alternated

__all__ = ["least_makespan", "log_normal_sizes", "uneven_clients"]

LIMIT = Limit(1.1, at_most=True)
BATCH = 10


def log_normal_sizes(clients: int, seed: int = 0) -> tuple[int, ...]:
    """Return how many images each client has, in whole batches.

    exp(N(log 60, 1)), so that the largest of a hundred is ten times the median.
    """
    generator = Streams(seed).at("sizes").generator()
    batches = generator.lognormal(mean=4.1, sigma=1.0, size=clients) / BATCH
    return tuple(BATCH * max(1, round(float(each))) for each in batches)


def least_makespan(sizes: tuple[int, ...], workers: int) -> float:
    """Return max(total / workers, largest), in images."""
    return max(sum(sizes) / workers, max(sizes))


def uneven_clients(figure: str, effort: Effort) -> Comparison:
    """Return how much longer a round takes than the lower bound.

    What an image costs is measured beside it: the same number of images in as many
    clients of one size, which divide over the workers without a rest.
    """
    clients = 4 * effort.workers if effort.quick else 50 * effort.workers
    sizes = log_normal_sizes(clients)
    even = BATCH * max(1, round(sum(sizes) / clients / BATCH))
    uneven = Shape(sizes, batch=BATCH)
    alike = replace(uneven, sizes=(even,) * clients)
    made = [
        Federation(shape, images_of(shape, Streams(0)), effort)
        for shape in (uneven, alike)
    ]
    timed = alternated(made[0].play, made[1].play, effort, time.perf_counter)
    # images that each worker has to see, of both
    least = least_makespan(sizes, effort.workers) / (sum(alike.sizes) / effort.workers)
    ratios = [each / least for each in timed.durations]
    told = (
        f"{median(timed.covey):.2f} s",
        f"lower bound {least * median(timed.peer):.2f} s",
    )
    return compared(figure, told, ratios, LIMIT)
