"""Files that are whole or not there and outlive a power cut, and what anybody may have written.

Whatever a run must not lose is changed through this module, so that a test can record
every change and replay what a power cut may leave of them.

Reading an SQLite file is bounded: a view stands in the place of a table and never ends; a trigger
runs at a write. So a file's own list of what it holds is compared before anything else of it is
read.
"""

import hashlib
import json
import os
import re
import sqlite3
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, cast

_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""What Windows takes for a device, whatever folder it is in."""

MEBIBYTE = 2**20

KEY = "checksum"

QUERY_SECONDS = 600.0
"""How long one connection may work: a long ledger is read in many."""

_LARGEST_ROW = 2**28
"""Bytes of a value or a row."""

_STEPS = 100_000
"""Steps of SQLite's machine between two looks at the clock: some milliseconds."""

stopping = Event()
"""Set where the process is to end: every query then fails, in whatever thread it runs."""


LAYOUT = "SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 1000"
"""What a file says that it holds."""


def num_cores() -> int:
    """Return how many cores this process may use, where the system says so; else all."""
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
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # a relative one is to be ignored, as the XDG specification says
    return (base if base.is_absolute() else Path.home() / ".config") / "covey"


def path_inside(folder: Path, relative: str) -> Path:
    """Return the path of a file in a folder, by what data or a message call it there.

    Raises:
        ValueError: it is not below the folder: by itself, by a link, or as a device's name.
    """
    path = folder / relative
    parts, home = Path(relative).parts, folder.resolve()
    # the parent, as a link in the place of the file itself is that file
    is_below = (path.parent.resolve() / path.name).is_relative_to(home)
    if not parts or ".." in parts or Path(relative).is_absolute() or not is_below:
        raise ValueError(f"{relative!r} must be a path below {folder}")
    if any(map(_DEVICE.fullmatch, parts)):
        raise ValueError(f"{relative!r} must be the path of a file, found a device")
    return path


def leaving_link(folder: Path, others: str) -> Path | None:
    """Return a link below a folder that leads out of it; None: there is none.

    Args:
        folder: where to look.
        others: a folder inside it, with one for each of other programs, who make folders with
            links in these. Links in the two upper ones are looked at.
    """
    home = folder.resolve()
    for place, inner, files in os.walk(folder):
        for path in (Path(place, name) for name in (*inner, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(home):
                return path
        if Path(place).parent == folder / others:
            inner.clear()
    return None


def make_folder(folder: Path) -> tuple[Path, ...]:
    """Make a folder, for its owner only, that is there after a power cut too.

    Folders above it that are missing are made as well, for whom the umask allows.

    Returns:
        What was made, the innermost first.
    """
    missing = tuple(parent for parent in (folder, *folder.parents) if not parent.exists())
    for parent in reversed(missing):
        disk.make_folder(parent, 0o700 if parent == folder else 0o777)
        flush_folder(parent.parent)
    return missing


def move(source: Path, target: Path) -> None:
    """Give a file another name; flush both folders to make it last."""
    disk.rename(source, target)


def delete(path: Path) -> None:
    """Take away a file; flush its folder to make it last."""
    disk.delete(path)


def delete_whole(path: Path) -> None:
    """Take away a file, a link, or a folder with all that is in it, for good.

    What a link leads to stays.
    """
    if not path.exists() and not path.is_symlink():
        return
    is_folder = path.is_dir() and not path.is_symlink()
    inside = sorted(path.rglob("*"), reverse=True) if is_folder else []
    for place in (*inside, path):
        disk.delete(place)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Put the folder itself on the disk: a new name is a change to the folder."""
    disk.sync_folder(folder)


def read_bounded(path: Path, at_most: int = 64 * MEBIBYTE) -> bytes:
    """Return a file's bytes.

    Args:
        path: of a regular file: a pipe or a device might never end.
        at_most: bytes that such a file can sensibly have.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    size = check_regular(path)
    if size > at_most:
        raise OSError(f"{path} must have {at_most:,} bytes at most, found {size:,}")
    with path.open("rb") as file:  # what has grown since is not read either
        return file.read(at_most)


def check_regular(path: Path) -> int:
    """Return a file's size in bytes.

    Raises:
        OSError: it is not there, or is a folder, or a pipe or device that may never end.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} must be a regular file, found a folder, pipe or device")
    return status.st_size


def read_text(path: Path, at_most: int = 16 * MEBIBYTE) -> str:
    """Return a file's text, as `read_bounded` does, without a byte order mark.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_bounded(path, at_most).decode("utf-8-sig")


def file_hash(path: Path) -> str:
    """Return SHA-256 of a regular file's bytes, as hex, read piece by piece.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked_json(document: Mapping[str, Any]) -> bytes:
    """Return a document as JSON in ASCII, with a hash of it in `checksum`."""
    whole = {**document, KEY: _digest(document)}
    return json.dumps(whole, indent=1).encode("ascii")


def checked(content: bytes) -> bytes:
    """Return such a file's content as it is, once its hash is compared.

    Raises:
        ValueError: it is no JSON, or another document than the one that was hashed.
    """
    try:
        parsed = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(parsed, dict) or KEY not in parsed:
        raise ValueError("it has no checksum")
    document = cast("dict[str, Any]", parsed)
    known = document.pop(KEY)
    if known != _digest(document):
        raise ValueError("it was changed: its checksum is another")
    return content


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def bounded(connection: sqlite3.Connection, seconds: float = QUERY_SECONDS) -> sqlite3.Connection:
    """Bound a connection's time and the bytes of a row; nothing in the file calls functions."""
    deadline = monotonic() + seconds
    connection.set_progress_handler(lambda: stopping.is_set() or monotonic() > deadline, _STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_ROW)
    try:
        connection.execute("PRAGMA trusted_schema = OFF").close()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def layout(rows: Iterable[Iterable[object]]) -> frozenset[tuple[str, ...]]:
    """Return what `LAYOUT` finds, however its statements are broken into lines."""
    return frozenset(tuple(" ".join(str(cell).split()) for cell in row) for row in rows)


def strange(found: frozenset[tuple[str, ...]], expected: frozenset[tuple[str, ...]]) -> str:
    """Name what a file holds and must not, or lacks: "view events"; "": nothing."""
    odd = sorted(found - expected) or sorted(expected - found)
    return f"{odd[0][0]} {odd[0][1]}" if odd else ""
