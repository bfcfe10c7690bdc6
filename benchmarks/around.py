"""What does a run take around its rounds, and what do commands take to begin?

In a process of its own each: the processor's seconds from the last round of 200 clients with
250 images of MNIST to the end of the run, and seconds by the clock of commands.
"""

import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory

import covey
from benchmarks.playing import in_own_process, note

MNIST = {"data.name": "mnist", "population.clients": 200, "population.examples_per_client": 250}
DIGITS = {"data.name": "digits", "population.clients": 4}
IFCA = {"method.name": "ifca", "method.num_clusters": 2}
COVEY = (sys.executable, "-m", "covey")


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=[*FIGURES])
    parser.add_argument("--repeats", type=int, default=3)


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a row per figure."""
    rows: list[dict[str, object]] = []
    for name in chosen.only:
        what, bound, take = FIGURES[name]
        seconds = [take(quick=chosen.quick) for _ in range(1 if chosen.quick else chosen.repeats)]
        rows.append(
            {
                "figure": name,
                "seconds": median(seconds),
                "least to most": (min(seconds), max(seconds)),
                "of": what,
                "bound": bound,
            }
        )
        note(f"{name}: {rows[-1]['seconds']:.2f}")
    return {"around the rounds": rows}


def _end(method: Mapping[str, object], *, quick: bool) -> float:
    return in_own_process(end_of_run, DIGITS if quick else MNIST, method)


def end_of_run(data: Mapping[str, object], method: Mapping[str, object]) -> float:
    """Return the processor's seconds from a run's last round to its end."""
    rounds = list[float]()
    config = {"rounds": 1, "model.name": "mnist-cnn", "risk.name": "none", **data, **method}
    with TemporaryDirectory() as place:
        covey.run(
            config={**config, "secrets.source": "seeded"},
            out=f"{place}/run",
            on_round=lambda _: rounds.append(time.process_time()),
            progress=False,
        )
    return time.process_time() - rounds[-1]


def _command(*words: str, quick: bool) -> float:
    """Return how long a command lasts, in an empty folder."""
    few = ("--set", "rounds=1") if quick and words == ("run",) else ()
    known = os.pathsep.join(sys.path)
    with TemporaryDirectory() as place:
        began = time.perf_counter()
        subprocess.run(
            [*COVEY, *words, *few],
            check=True,
            cwd=place,
            env={**os.environ, "PYTHONPATH": known, "HOME": place},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.perf_counter() - began


Take = Callable[..., float]
FIGURES: Mapping[str, tuple[str, float, Take]] = {
    "end-fedavg": ("the processor", 6.0, partial(_end, {"method.name": "fedavg"})),
    "end-ifca": ("the processor", 6.0, partial(_end, IFCA)),
    "covey run": ("the clock", 15.0, partial(_command, "run")),
    "covey --help": ("the clock", 0.4, partial(_command, "--help")),
}
"""By name: of what its seconds are, their bound on two quiet cores, and what takes it."""
