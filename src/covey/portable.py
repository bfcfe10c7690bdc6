"""What operating systems do differently."""

import ctypes
import os
import sys

__all__ = ["keep_freed_memory", "num_cores", "permissions_of_others"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""


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


def keep_freed_memory(most: int, largest: int) -> bool:
    """Let threads keep freed memory for what they take next, where the system is glibc's.

    By itself glibc gives back what a step of training frees at its end, and asks for it
    again in the next: thousands of page faults a second, for which threads wait for each
    other. What the process's environment says of it stands.

    Args:
        most: bytes at the end of an arena that are kept.
        largest: bytes of what is kept at all; more is asked for, and given back, alone.

    Returns:
        Whether it is so from now on.
    """
    is_told = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") for name in os.environ
    )
    if sys.platform != "linux" or is_told:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(M_MMAP_THRESHOLD, largest) and mallopt(M_TRIM_THRESHOLD, most)
    )
