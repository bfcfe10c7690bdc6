"""MD5 sums of the published data files, as their publishers and mirrors print them."""

import hashlib
from pathlib import Path

from covey.errors import ChecksumError

__all__ = ["PUBLISHED", "verify"]

PUBLISHED = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
}
"""MD5 by file name, by source. Files that are not here are read unchecked."""


def verify(source: str, path: Path, content: bytes) -> None:
    """Check a file's bytes against the published sum, if there is one for its name.

    Guards against broken downloads, not against an attacker: MD5 is forgeable.

    Raises:
        ChecksumError: the bytes are not the published ones.
    """
    expected = PUBLISHED.get(source, {}).get(path.name)
    if expected is None:
        return
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ChecksumError(
            f"{path} must be {source}'s published file with MD5 {expected}, found MD5 "
            f"{found}. Delete it and get it again."
        )
