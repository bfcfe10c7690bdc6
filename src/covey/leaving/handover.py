"""What a requester receives: its salt, the marks made with it, and their way to it under seal.

    key    = HKDF-SHA256(secret, info = purpose)
    sealed = nonce || AES-256-GCM(key, nonce, content)

A request's mark has the handle, sealed with the salt for the name, so that the requester finds it
in a run that erased its name. Only the requester receives the salt, 16 random bytes: without it, a
guessed name opens no record. Until somebody says that it arrived, the salt is kept in one file
per request, which names no one, sealed with the signing key. The run's folder alone does not open
it: that key lies elsewhere.
"""

import hmac
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from covey.base.errors import RunError
from covey.base.files import flush_folder, make_folder, path_inside, read_bounded, replace_whole
from covey.base.names import ClientName, Handle
from covey.base.signature import SigningKey
from covey.ledger.requests import Mark

if TYPE_CHECKING:
    from covey.runs.folder import RunFolder  # which loads SQLAlchemy

NONCE = 12

SALT_BYTES = 16

PURPOSE = b"covey: salts that nobody has acknowledged"


def seal(secret: bytes, purpose: bytes, content: bytes, beside: bytes | None = None) -> bytes:
    """Return the content so that only the secret opens it, for this purpose and beside this."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + _cipher(secret, purpose).encrypt(nonce, content, beside)


def unseal(secret: bytes, purpose: bytes, sealed: bytes, beside: bytes | None = None) -> bytes:
    """Return what was sealed.

    Raises:
        InvalidTag: with another secret, for another purpose or beside something else.
    """
    return _cipher(secret, purpose).decrypt(sealed[:NONCE], sealed[NONCE:], beside)


def _cipher(secret: bytes, purpose: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=purpose).derive(secret))


def fresh_mark(handle: Handle, name: ClientName) -> Mark:
    """Draw a salt, and make the marks that go with it."""
    salt = secrets.token_bytes(SALT_BYTES)
    return Mark(salt.hex(), subject_mark(name, salt), sealed(handle, name, salt))


def subject_mark(name: ClientName, salt: bytes) -> str:
    """Return HMAC-SHA256 of a client's name under its salt, as hex digits.

    Names can be guessed, so the salt must be random and 16 bytes or more.
    """
    return hmac.new(salt, name.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def sealed(handle: Handle, name: ClientName, salt: bytes) -> str:
    """Return the handle in hex digits that only name and salt together open."""
    return seal(salt, _purpose(name), handle.encode()).hex()


def unsealed(record: str, name: ClientName, salt: bytes) -> Handle | None:
    """Return the handle; None: the record is of another name, or of another salt."""
    try:
        return unseal(salt, _purpose(name), bytes.fromhex(record)).decode()
    except InvalidTag:
        return None


def _purpose(name: ClientName) -> bytes:
    return b"covey: the handle of " + name.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Handover:
    """What a requester is to get.

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


def keep_handover(folder: "RunFolder", key: SigningKey, handover: Handover) -> None:
    """Seal what is to be handed over, before anyone else sees it."""
    make_folder(folder.unacknowledged)
    content, beside = json.dumps(asdict(handover)).encode(), handover.request.encode()
    sealed = seal(key.private_bytes_raw(), PURPOSE, content, beside)
    replace_whole(_path(folder, handover.request), sealed, mode=0o600)


def unacknowledged(folder: "RunFolder", key: SigningKey) -> tuple[Handover, ...]:
    """Return what was handed out and not acknowledged, in order of the requests' names.

    Raises:
        RunError: a file cannot be opened with this key.
    """
    handovers: list[Handover] = []
    for path in sorted(folder.unacknowledged.glob("*.sealed")):
        try:
            sealed, beside = read_bounded(path), path.stem.encode()
            content = unseal(key.private_bytes_raw(), PURPOSE, sealed, beside)
        except (InvalidTag, OSError, ValueError) as error:
            raise RunError(
                f"{path} must open with the key that it was sealed with, found another, or damage: "
                f"put the old key back (its file ends in .retired), or delete the file."
            ) from error
        handovers.append(Handover(**json.loads(content)))
    return tuple(handovers)


def acknowledge(folder: "RunFolder", request: str) -> None:
    """Delete a salt that arrived.

    Raises:
        RunError: none is kept of this request.
    """
    if not request.isalnum() or not (path := _path(folder, request)).exists():
        waiting = ", ".join(sorted(file.stem for file in folder.unacknowledged.glob("*.sealed")))
        raise RunError(
            f"A salt must be kept of a request to be acknowledged, once, found {request!a}, and "
            f"kept are {waiting or 'none'}: see `covey forget {folder.path} --again`."
        )
    path.unlink()
    flush_folder(path.parent)


def _path(folder: "RunFolder", request: str) -> Path:
    return path_inside(folder.unacknowledged, f"{request}.sealed")
