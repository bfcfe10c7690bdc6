"""The sealed record that finds a client whose name was erased, given name and salt.

    key    = HKDF-SHA256(salt, info = name)
    sealed = nonce || AES-256-GCM(key, nonce, handle)

The salt is 16 random bytes that only the requester is given, so whoever holds the sealed
record can open it for no name that it guesses.
"""

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from covey.types import ClientName, Handle

__all__ = ["sealed", "unsealed"]

NONCE = 12
PURPOSE = b"covey: the handle of "


def sealed(handle: Handle, name: ClientName, salt: bytes) -> str:
    """Return the handle in hex digits that only name and salt together open."""
    nonce = secrets.token_bytes(NONCE)
    return (nonce + _cipher(name, salt).encrypt(nonce, handle.encode(), None)).hex()


def unsealed(record: str, name: ClientName, salt: bytes) -> Handle | None:
    """Return the handle; None: the record is of another name, or of another salt."""
    written = bytes.fromhex(record)
    try:
        opened = _cipher(name, salt).decrypt(written[:NONCE], written[NONCE:], None)
    except InvalidTag:
        return None
    return opened.decode()


def _cipher(name: ClientName, salt: bytes) -> AESGCM:
    info = PURPOSE + name.encode("utf-8", "surrogatepass")
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=info).derive(salt))
