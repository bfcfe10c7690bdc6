"""How many examples should have their gradients at a time, where each is clipped?

Clipped gradients of single examples, summed as in a round under individual noise, by the size
of the parts that a client's examples are cut into; one thread.
"""

from argparse import ArgumentParser, Namespace
from statistics import median
from time import perf_counter

import torch

from benchmarks.playing import note
from benchmarks.speed import DP_MODELS, images_of, module_of
from covey.data.examples import Examples
from covey.engine.example_gradients import clipped_sum, part_size

SIZES = (16, 64, 128, 192, 256, 384, 512, 1024)


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--models", nargs="+", choices=DP_MODELS, default=[*DP_MODELS])
    parser.add_argument("--repeats", type=int, default=5)


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a row per model and size of a part."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name in chosen.models[-1:] if chosen.quick else chosen.models:
        shape = DP_MODELS[name]
        module = module_of(shape)
        ((inputs, labels),) = images_of(shape)
        sizes = SIZES[:1] if chosen.quick else SIZES
        seconds: dict[int, list[float]] = {size: [] for size in sizes}
        for repeat in range(chosen.repeats + 1):
            for size in sizes:
                part, few = Examples(inputs[:size], labels[:size]), max(1, 256 // size)
                began = perf_counter()
                for _ in range(few):
                    clipped_sum(module, part, 1.0)
                if repeat:  # the first warms up
                    seconds[size].append((perf_counter() - began) / few)
        own = part_size(module)
        for size, taken in seconds.items():
            rate = size / median(taken)
            rows.append({"model": name, "what": f"{size} at a time", "records a second": rate})
            rows[-1] |= {"covey takes": own}
            note(f"{name}, {size} at a time: {rate:,.0f} records a second")
    return {"clipped gradients of single examples, one thread": rows}
