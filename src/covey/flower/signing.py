"""How nodes know each other's messages: by the keys that Flower knows them by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from covey.bounded_io import read_bounded
from covey.errors import ConfigError
from covey.flower.invalid import InvalidMessageError
from covey.secure_sums import (
    Identities,
    Keys,
    Reason,
    RefusedError,
    Terms,
)

__all__ = ["NodeIdentities", "check_keys", "identities_in"]

KEY, PEERS = "key", "peers"
"""Files beside node.toml: the node's own key, and everybody's public ones."""


@dataclass(frozen=True, slots=True)
class NodeIdentities:
    """Keys of nodes: ECDSA with SHA-384.

    What is signed here begins with other words than what Flower lets a node sign.

    Attributes:
        own: signs.
        known: everybody's public key, by the client's name.
    """

    own: EllipticCurvePrivateKey = field(repr=False)
    known: Mapping[str, EllipticCurvePublicKey]

    def sign(self, content: bytes) -> bytes:
        """Return the client's signature."""
        return self.own.sign(content, ECDSA(SHA384()))

    def knows(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say whether the client of this name signed that content."""
        return name in self.known and _signed(self.known[name], signature, content)


def identities_in(folder: Path) -> Identities:
    """Return by what a node signs in a round, and by which keys it knows the others.

    Raises:
        ConfigError: a file is missing or damaged. Nobody sends anything under masks to
            clients that a server may have invented.
    """
    if not (folder / PEERS).is_file():
        raise ConfigError(
            f"Under masks clients sign what they send: expected {folder / PEERS}, with "
            f"everybody's public key, found no such file. Put there what `covey deploy "
            f"init` writes, or set privacy.secure_sums = false everywhere."
        )
    try:
        own = load_ssh_private_key(read_bounded(folder / KEY), None)
        lines = read_bounded(folder / PEERS).splitlines()
        named = [line.split(b" ", 2) for line in lines if line.strip()]
        known = {n.decode(): load_ssh_public_key(b" ".join(k)) for *k, n in named}
    except (OSError, ValueError, UnsupportedAlgorithm) as problem:
        raise _unreadable(folder, str(problem)) from None
    elliptic = {n: k for n, k in known.items() if isinstance(k, EllipticCurvePublicKey)}
    if not isinstance(own, EllipticCurvePrivateKey) or len(elliptic) < len(named):
        raise _unreadable(folder, "a name comes twice, or a key is of another kind")
    return NodeIdentities(own, elliptic)


def check_keys(name: str, terms: Terms, letter: bytes, public: bytes) -> None:
    """Refuse keys of a round that a node did not sign with the key it is known by.

    All others would refuse the round because of them.

    Args:
        name: of the client.
        terms: of the round.
        letter: what it sent.
        public: its key, in PEM, as the SuperLink vouches for it.

    Raises:
        InvalidMessageError: another key signed them, or none.
    """
    try:
        key = load_pem_public_key(public)
        keys = Keys.from_bytes(letter, terms, 1, name)
    except (ValueError, UnsupportedAlgorithm, RefusedError):
        return  # the protocol says what it is
    if not isinstance(key, EllipticCurvePublicKey) or not _signed(
        key, keys.signature, keys.signed_part
    ):
        raise InvalidMessageError(Reason.FORGED_SIGNATURE.value)


def _signed(key: EllipticCurvePublicKey, signature: bytes, content: bytes) -> bool:
    try:
        key.verify(signature, content, ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def _unreadable(folder: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{folder} must hold `{KEY}`, the node's own key, and `{PEERS}`, one line for each "
        f"client with its public key and name, as `covey deploy init` writes them, but: "
        f"{why}. Put them back."
    )
