"""Files that are whole or not there, and outlive a power cut.

Whatever a run must not lose is changed through this module, so that a test can record
every change and replay what a power cut may leave of them.
"""

import os
import sys
from pathlib import Path

__all__ = [
    "Disk",
    "delete",
    "delete_whole",
    "flush_folder",
    "make_folder",
    "move",
    "replace_whole",
    "user_folder",
]


class Disk:
    """Single changes to the disk; none is sure to last until it is synced."""

    def write(self, path: Path, content: bytes, mode: int) -> None:
        """Make a new file that holds this."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            file.write(content)

    def sync(self, path: Path) -> None:
        """Put a file's content on the disk."""
        handle = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in the place of what had it."""
        source.replace(target)

    def delete(self, path: Path) -> None:
        """Take away a file or an empty folder."""
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()

    def make_folder(self, path: Path, mode: int) -> None:
        """Make one folder, unless it is there."""
        path.mkdir(mode=mode, exist_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Put on the disk which names a folder holds."""
        if sys.platform == "win32":  # which writes names itself, and opens no folder
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


disk = Disk()
"""What all functions below change; a test puts one in its place that records."""


def replace_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file that appears under its name only once every byte is on the disk.

    Args:
        path: the file, replaced if it is there.
        content: all of it.
        mode: who may read and write it, less the process's umask.
    """
    # a fixed name, so that what a kill leaves behind is taken away the next time
    unfinished = path.with_suffix(".unfinished")
    if unfinished.exists():
        disk.delete(unfinished)
    disk.write(unfinished, content, mode)
    disk.sync(unfinished)
    disk.rename(unfinished, path)
    flush_folder(path.parent)


def user_folder() -> Path:
    """Return where covey keeps what is a user's, and no run's or node's."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "covey"


def make_folder(folder: Path) -> tuple[Path, ...]:
    """Make a folder, for its owner only, that is there after a power cut too.

    Folders above it that are missing are made as well, for whom the umask allows.

    Returns:
        What was made, the innermost first.
    """
    missing = tuple(each for each in (folder, *folder.parents) if not each.exists())
    for each in reversed(missing):
        disk.make_folder(each, 0o700 if each == folder else 0o777)
        flush_folder(each.parent)
    return missing


def move(source: Path, target: Path) -> None:
    """Give a file another name; flush both folders to make it last."""
    disk.rename(source, target)


def delete(path: Path) -> None:
    """Take away a file; flush its folder to make it last."""
    disk.delete(path)


def delete_whole(path: Path) -> None:
    """Take away a file, or a folder with all that is in it, for good."""
    if not path.exists():
        return
    inside = sorted(path.rglob("*"), reverse=True) if path.is_dir() else []
    for each in (*inside, path):
        disk.delete(each)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Put the folder itself on the disk: a new name is a change to the folder."""
    disk.sync_folder(folder)
