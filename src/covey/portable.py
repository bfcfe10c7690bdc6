"""What operating systems do differently."""

import os
import sys

__all__ = ["num_cores", "permissions_of_others"]


def num_cores() -> int:
    """Return how many cores this process may use, where the system tells; else all."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def permissions_of_others(mode: int) -> int:
    """Return the bits of a file's mode that let anybody but its owner in.

    None on Windows, where the bits say nothing of who may read a file.
    """
    return 0 if sys.platform == "win32" else mode & 0o077
