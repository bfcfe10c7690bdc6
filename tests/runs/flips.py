"""Files in which one bit at a time is flipped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from covey import CoveyError

FLIPS = 200


def flipped(path: Path, times: int, check: Callable[[], bool]) -> list[tuple[int, int]]:
    """Flip one bit of a file at a time, and return those that `check` does not see."""
    whole = path.read_bytes()
    draws = np.random.default_rng(5)
    silent: list[tuple[int, int]] = []
    for _ in range(times):
        place, bit = int(draws.integers(len(whole))), int(draws.integers(8))
        data = bytearray(whole)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        if not check():
            silent.append((place, bit))
    path.write_bytes(whole)
    return silent


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except CoveyError:
        return True
    return False


def changed_silently(path: Path, read: Callable[[], object]) -> list[tuple[int, int]]:
    """Return the flips after which something else is read, and not refused."""
    before = read()
    return flipped(path, FLIPS, lambda: refused(read) or read() == before)
