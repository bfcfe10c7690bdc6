"""Contents that only the holder of a secret opens.

key    = HKDF-SHA256(secret, info = purpose)
sealed = nonce || AES-256-GCM(key, nonce, content)
"""

import secrets

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE = 12


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
