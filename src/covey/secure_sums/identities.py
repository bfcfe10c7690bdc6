"""How clients know each other's messages without believing the server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

__all__ = ["Ed25519Identities", "Identities", "Unsigned"]


@runtime_checkable
class Identities(Protocol):
    """A client's own key, and those by which it knows the others."""

    def sign(self, content: bytes) -> bytes:
        """Return the client's signature, at most 256 bytes."""
        ...

    def knows(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say whether the client of this name signed that content."""
        ...


@dataclass(frozen=True, slots=True)
class Ed25519Identities:
    """Keys of Ed25519.

    Attributes:
        own: signs.
        known: everybody's public key, by name, from elsewhere than the server.
    """

    own: Ed25519PrivateKey = field(repr=False)
    known: Mapping[str, Ed25519PublicKey]

    def sign(self, content: bytes) -> bytes:
        """Return the client's signature."""
        return self.own.sign(content)

    def knows(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say whether the client of this name signed that content."""
        if name not in self.known:
            return False
        try:
            self.known[name].verify(signature, content)
        except InvalidSignature:
            return False
        return True


class Unsigned:
    """For rounds in which nobody signs: it knows nobody."""

    def sign(self, content: bytes) -> bytes:
        """Return nothing."""
        del content
        return b""

    def knows(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say no."""
        del name, signature, content
        return False
