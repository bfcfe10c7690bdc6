"""What benchmarks share: rounds that are played in memory, and processes of their own."""

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from covey import ServerState, Streams
from covey.settings.run import BuiltRun

Given = ParamSpec("Given")
Found = TypeVar("Found")


def next_round(
    run: BuiltRun, state: ServerState, streams: Streams, cohort: int | None = None
) -> ServerState:
    """Play one round, in which the first so many clients take part; None: all."""
    t = state.round_index
    clients = run.clients(run.population.clients[:cohort], t)
    return run.algorithm.round(state, clients, streams.at("round", t)).state


def played(run: BuiltRun) -> ServerState:
    """Play a run to its end; nothing is written, and no ledger kept."""
    state = run.algorithm.init(run.streams)
    for _ in range(run.config.rounds):
        state = next_round(run, state, run.streams)
    return state


def in_own_process(
    work: Callable[Given, Found], *args: Given.args, **kwargs: Given.kwargs
) -> Found:
    """Work in a process of its own, so that its peak of memory is no other's."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(work, *args, **kwargs).result()


def peak_bytes() -> int:
    """Return the most memory that this process held; its parent's does not count."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("Peaks are read from /proc/self/status: measure memory on Linux.")


def note(text: str) -> None:
    """Say how far a benchmark is, beside what it prints."""
    print(text, file=sys.stderr, flush=True)
