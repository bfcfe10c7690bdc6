"""MD5 sums of published data files, as their publishers and mirrors print them."""

import hashlib
from pathlib import Path

from covey.errors import ChecksumError

__all__ = ["verify"]


def verify(source: str, path: Path, content: bytes, md5: str) -> None:
    """Check a file's bytes against the published sum; an empty one is not checked.

    Guards against broken downloads, not against an attacker: MD5 is forgeable.

    Raises:
        ChecksumError: the bytes are not the published ones.
    """
    if not md5:
        return
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise ChecksumError(
            f"{path} must be {source}'s published file with MD5 {md5}, found MD5 "
            f"{found}. Delete it and get it again."
        )
