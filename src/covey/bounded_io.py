"""Reading files that anybody may have written: only files, and only so much of them."""

import hashlib
import stat
import zlib
from pathlib import Path

__all__ = [
    "MEBIBYTE",
    "check_regular",
    "file_hash",
    "gunzip",
    "read_bounded",
    "read_text",
]

MEBIBYTE = 2**20


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
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} must be a regular file, and is a folder, pipe or device")
    return found.st_size


def read_text(path: Path, at_most: int = 16 * MEBIBYTE) -> str:
    """Return a file's text, as `read_bounded` does.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_bounded(path, at_most).decode("utf-8")


def file_hash(path: Path) -> str:
    """Return SHA-256 of a regular file's bytes, as hex, read piece by piece.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def gunzip(content: bytes, at_most: int) -> bytes:
    """Return the one gzip member in `content`, unpacked.

    Raises:
        ValueError: it is no whole gzip file, or holds more bytes than `at_most`.
    """
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacker.decompress(content, at_most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(unpacked) > at_most:
        raise ValueError(f"it holds more than {at_most:,} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it ends too early, or goes on after its end")
    return unpacked
