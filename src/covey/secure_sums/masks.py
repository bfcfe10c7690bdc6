"""Masks over whole numbers mod 2^64, and the secrets of two clients that they grow from."""

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jaxtyping import UInt64

__all__ = [
    "add_stream",
    "agreed",
    "derived",
    "makes_a_secret",
    "private_key",
    "public_of",
    "sealed",
    "stream_bytes",
    "unsealed",
]

Numbers = UInt64[np.ndarray, " numbers"]

CHUNK = 2**16
"""Numbers that are drawn at a time: they stay in the processor's cache."""

ZEROS = bytes(8 * CHUNK)
NO_NONCE = bytes(16)  # every key here is used once
AEAD_NONCE = bytes(12)


def public_of(private: bytes) -> bytes:
    """Return the public half of an X25519 key."""
    return private_key(private).public_key().public_bytes_raw()


def makes_a_secret(public: bytes) -> bool:
    """Say whether a public key agrees on a secret at all: those of low order do not."""
    try:
        agreed(private_key(bytes(range(32))), public, b"", b"")
    except ValueError:
        return False
    return True


def private_key(private: bytes) -> X25519PrivateKey:
    """Return a private key of 32 bytes that were drawn, to be used several times."""
    return X25519PrivateKey.from_private_bytes(private)


def agreed(
    private: X25519PrivateKey, public: bytes, salt: bytes, purpose: bytes
) -> bytes:
    """Return the secret of two keys for one purpose, 32 bytes.

    Raises:
        ValueError: the public key is of low order.
    """
    shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    return derived(shared, salt, purpose)


def derived(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """Return what HKDF-SHA256 makes of a secret for one purpose, 32 bytes."""
    return HKDF(SHA256(), 32, salt, purpose).derive(secret)


def stream_bytes(key: bytes, length: int) -> bytes:
    """Return the first bytes of ChaCha20's stream under a key that is used once."""
    encryptor = Cipher(ChaCha20(key, NO_NONCE), mode=None).encryptor()
    return encryptor.update(bytes(length))


def add_stream(numbers: Numbers, key: bytes, *, sign: int) -> None:
    """Add a key's mask to these numbers, or take it off, mod 2^64 and in place.

    Args:
        numbers: changed in place.
        key: used for nothing else.
        sign: 1 adds, -1 takes off.
    """
    encryptor = Cipher(ChaCha20(key, NO_NONCE), mode=None).encryptor()
    drawn = np.empty(CHUNK, dtype="<u8")
    for start in range(0, len(numbers), CHUNK):
        part = numbers[start : start + CHUNK]
        encryptor.update_into(ZEROS[: part.nbytes], drawn.view(np.uint8).data)
        if sign > 0:
            part += drawn[: len(part)]
        else:
            part -= drawn[: len(part)]


def sealed(key: bytes, content: bytes, bound_to: bytes) -> bytes:
    """Return a content that only the key's other holder reads. One content per key."""
    return ChaCha20Poly1305(key).encrypt(AEAD_NONCE, content, bound_to)


def unsealed(key: bytes, content: bytes, bound_to: bytes) -> bytes | None:
    """Return what was sealed; None: it was not sealed with this key, or is changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(AEAD_NONCE, content, bound_to)
    except InvalidTag:
        return None
