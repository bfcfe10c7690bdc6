"""Where runs lie below a folder: no link is followed, and no more than so much is read."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEPTH", "MOST_FOLDERS", "PRUNED", "Found", "runs_below", "size_of"]

DEPTH = 6
"""Folders below a root that are looked into."""

MOST_FOLDERS = 100_000
"""Folders that are looked at below one root."""

PRUNED = ".covey-pruned-"
"""How the names of folders begin whose deletion began."""

MARKS = ("config.toml", "ledger.sqlite")
"""A run has one of these at least, or had it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A folder that may be a run's.

    Attributes:
        problem: why it was not looked at; "": it was.
        is_system: whether the operating system refused it.
    """

    path: Path
    problem: str = ""


def runs_below(root: Path, depth: int = DEPTH) -> Iterator[Found]:
    """Yield folders that hold a run's settings or its ledger, in the order of their paths.

    Where too much lies below the root, the last one says so.
    """
    looked_at = 0
    waiting = [(root, depth)]
    while waiting:
        folder, left = waiting.pop()
        looked_at += 1
        if looked_at > MOST_FOLDERS:
            yield Found(
                root,
                f"more than {MOST_FOLDERS:,} folders lie below it, and the rest were not "
                f"looked at: give folders nearer to the runs",
            )
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda each: each.name)
        except OSError as error:
            yield Found(folder, f"the folder cannot be listed: {error.strerror}")
            continue
        marks = [each for each in entries if each.name in MARKS]
        if linked := [each.name for each in marks if each.is_symlink()]:
            yield Found(folder, f"{linked[0]} is a link, and links are not followed")
        elif any(each.is_file(follow_symlinks=False) for each in marks):
            yield Found(folder)
        below = [
            Path(each.path)
            for each in entries
            if each.is_dir(follow_symlinks=False) and not each.name.startswith(PRUNED)
        ]
        if left > 0:
            waiting += [(each, left - 1) for each in reversed(below)]


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a run's folder, but for runs inside it."""
    total, waiting = 0, [folder]
    while waiting:
        here = waiting.pop()
        try:
            entries = list(os.scandir(here))
        except OSError:
            continue
        inner_run = any(each.name in MARKS for each in entries)
        if inner_run and here != folder:
            continue
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                waiting.append(Path(each.path))
            else:
                total += _size(each)
    return total


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # deleted since, by who plays the run
        return 0
