"""Salts that were given out, kept sealed until somebody says that they arrived.

    key    = HKDF-SHA256(signing key, info = purpose)
    sealed = nonce || AES-256-GCM(key, nonce, what is handed over)

One file per request, which names nobody. Who has the run's folder alone cannot open it: the
signing key lies elsewhere.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from covey.atomic_io import flush_folder, replace_whole
from covey.bounded_io import read_bounded
from covey.errors import RunError
from covey.runtime.folder import RunFolder
from covey.unlearning.signature import SigningKey

__all__ = ["Handover", "acknowledge", "keep_handover", "unacknowledged"]

NONCE = 12
PURPOSE = b"covey: salts that nobody has acknowledged"


@dataclass(frozen=True, slots=True)
class Handover:
    """What a requester is to be given.

    Attributes:
        request: the request's identifier.
        answer: what was answered; "": nothing yet.
        proof: its path; "": nothing was answered yet.
        salt: hex.
    """

    request: str
    salt: str = field(repr=False)
    answer: str = ""
    proof: str = ""


def keep_handover(folder: RunFolder, key: SigningKey, handover: Handover) -> None:
    """Seal what is to be handed over, before it is told to anybody."""
    folder.unacknowledged.mkdir(mode=0o700, exist_ok=True)
    nonce = secrets.token_bytes(NONCE)
    told = json.dumps(asdict(handover)).encode()
    opened = _cipher(key).encrypt(nonce, told, handover.request.encode())
    replace_whole(_path(folder, handover.request), nonce + opened, mode=0o600)


def unacknowledged(folder: RunFolder, key: SigningKey) -> tuple[Handover, ...]:
    """Return what was given out and not acknowledged, in order of the requests' names.

    Raises:
        RunError: a file cannot be opened with this key.
    """
    return tuple(_opened(folder, key))


def acknowledge(folder: RunFolder, request: str) -> None:
    """Delete a salt that arrived.

    Raises:
        RunError: none is kept of this request.
    """
    path = _path(folder, request)
    if not request.isalnum() or not path.exists():
        kept = ", ".join(
            sorted(each.stem for each in folder.unacknowledged.glob("*.sealed"))
        )
        raise RunError(
            f"A salt is acknowledged once, by its request, found {request!a}, and kept "
            f"are: {kept or 'none'}. `covey forget {folder.path} --again` shows them."
        )
    path.unlink()
    flush_folder(path.parent)


def _opened(folder: RunFolder, key: SigningKey) -> Iterator[Handover]:
    for path in sorted(folder.unacknowledged.glob("*.sealed")):
        try:
            written = read_bounded(path)
            told = _cipher(key).decrypt(
                written[:NONCE], written[NONCE:], path.stem.encode()
            )
        except (InvalidTag, OSError, ValueError) as error:
            raise RunError(
                f"{path} must open with the signing key that it was sealed with, but it "
                f"does not: the key was replaced, or the file is damaged. Put the old key "
                f"back (its file ends in .retired), or delete the file."
            ) from error
        yield Handover(**json.loads(told))


def _path(folder: RunFolder, request: str) -> Path:
    return folder.unacknowledged / f"{request}.sealed"


def _cipher(key: SigningKey) -> AESGCM:
    return AESGCM(
        HKDF(SHA256(), 32, salt=None, info=PURPOSE).derive(key.private_bytes_raw())
    )
