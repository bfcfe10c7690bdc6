"""Files that are whole or not there, and outlive a power cut."""

import os
import sys
from pathlib import Path

__all__ = ["flush_folder", "make_folder", "replace_whole"]


def replace_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file that appears under its name only once every byte is on the disk.

    Args:
        path: the file, replaced if it is there.
        content: all of it.
        mode: who may read and write it, less the process's umask.
    """
    # a fixed name, so that what a kill leaves behind is taken away the next time
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(unfinished, flags, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    flush_folder(path.parent)


def make_folder(folder: Path) -> tuple[Path, ...]:
    """Make a folder, for its owner only, that is there after a power cut too.

    Folders above it that are missing are made as well, for whom the umask allows.

    Returns:
        What was made, the innermost first.
    """
    missing = tuple(each for each in (folder, *folder.parents) if not each.exists())
    for each in reversed(missing):
        each.mkdir(mode=0o700 if each == folder else 0o777, exist_ok=True)
        flush_folder(each.parent)
    return missing


def flush_folder(folder: Path) -> None:
    """Put the folder itself on the disk: a new name is a change to the folder."""
    if sys.platform == "win32":  # which writes names itself, and opens no folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
