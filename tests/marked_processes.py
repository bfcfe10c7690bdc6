"""Processes that a test started, by a mark that they inherit however they detach."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["MARK", "end_marked", "marked_processes"]

MARK = "COVEY_TEST_DEPLOYMENT"
"""The environment's variable that holds the mark."""
PATIENCE = 30.0  # seconds
POLL = 0.2


def marked_processes(mark: str) -> list[int]:
    """The ids of all processes whose mark is this, or begins with it and a slash."""
    exact = f"{MARK}={mark}".encode()
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            entries = (folder / "environ").read_bytes().split(b"\0")
            if any(e == exact or e.startswith(exact + b"/") for e in entries):
                processes.append(int(folder.name))
    return processes


def end_marked(mark: str, children: Callable[[], Iterable[object]] = lambda: ()) -> None:
    """Kill all processes with a mark, and wait until they are gone.

    Args:
        mark: theirs.
        children: polls those that are our own, or they stay as zombies.
    """
    end = time.monotonic() + PATIENCE
    while left := marked_processes(mark):
        if time.monotonic() > end:
            raise TimeoutError(f"processes {left} do not end")
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(POLL)
        list(children())
    list(children())  # the last of them may have ended since it was polled
