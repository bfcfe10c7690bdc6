"""Who a node is, whose a client's name is, and how their messages are known."""

import hashlib
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
from flwr.proto.node_pb2 import NodeInfo

from covey import ConfigError
from covey.base.files import read_bounded
from covey.base.names import ClientName
from covey.secure_sums.crypto import Identities
from covey.secure_sums.messages import Keys, Reason, RefusedError, Terms

PEM = b"-----BEGIN"
"""How a public key begins; nodes of a simulation have random bytes instead."""


class InvalidMessageError(Exception):
    """An answer is not in order."""


class BudgetSpentError(InvalidMessageError):
    """A node answers no more, as its own budget is spent."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What the SuperLink says of a node, which cannot be claimed by the node itself.

    Attributes:
        key: SHA-256 of its public key; empty where it has none that lasts.
        name: under which the operator registered the key; empty where it has none.
        public: the key itself, in PEM.
    """

    key: str = ""
    name: ClientName = ""
    public: bytes = b""


def identity_of(info: NodeInfo) -> NodeIdentity:
    """Return a node's identity; the SuperLink has checked that it holds the key."""
    key = bytes(info.public_key)
    if not key.startswith(PEM):
        return NodeIdentity(name=info.name)
    return NodeIdentity(hashlib.sha256(key).hexdigest(), info.name, key)


class NameBindings:
    """Each client's name, bound to the key of the node that first came with it.

    A key that the operator registered under a name has that name and no other, and may
    take it over: that is how a client gets a new key.

    Args:
        known: what the run's ledger holds.
        enforced: whether keys last; without authentication every start makes a new one.
    """

    def __init__(self, known: Mapping[ClientName, str], *, enforced: bool) -> None:
        self._keys = dict(known)
        self._enforced = enforced

    def bind(self, name: ClientName, node: NodeIdentity) -> None:
        """Bind a name to a node's key.

        Raises:
            InvalidMessageError: the name or the key belongs to another one.
        """
        if not self._enforced:
            return
        registered = bool(node.key) and node.name == name
        if node.name and not registered:
            raise InvalidMessageError("its key was registered under another name: give it that one")
        if self._keys.get(name, node.key) != node.key and not registered:
            raise InvalidMessageError(
                "its name is another key's: give it another, or register its key under this name"
            )
        if node.key and node.key in (k for n, k in self._keys.items() if n != name):
            raise InvalidMessageError("its key is another client's: give each client its own")
        if node.key:
            self._keys[name] = node.key

    def keys(self) -> Mapping[ClientName, str]:
        """Return the fingerprint of the key of each client that has come."""
        return dict(self._keys)


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

    def has_signed(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say whether the client of this name signed that content."""
        return name in self.known and _signed(self.known[name], signature, content)


def identities_in(folder: Path) -> Identities:
    """Return by what a node signs in a round, and by which keys it checks the others.

    Raises:
        ConfigError: a file is missing or damaged. No node sends anything under masks to
            clients that a server may have invented.
    """
    if not (folder / PEERS).is_file():
        raise ConfigError(
            f"{folder / PEERS} must hold everybody's public key for masks, found no such file: put "
            f"there what `covey deploy init` writes, or set privacy.secure_sums = false everywhere."
        )
    try:
        own = load_ssh_private_key(read_bounded(folder / KEY), None)
        lines = read_bounded(folder / PEERS).splitlines()
        named = [line.split(b" ", 2) for line in lines if line.strip()]
        known = {n.decode(): load_ssh_public_key(b" ".join(k)) for *k, n in named}
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        problem = str(error)
    else:
        elliptic = {n: k for n, k in known.items() if isinstance(k, EllipticCurvePublicKey)}
        if isinstance(own, EllipticCurvePrivateKey) and len(elliptic) == len(named):
            return NodeIdentities(own, elliptic)
        problem = "a name comes twice, or a key is of another kind"
    raise ConfigError(
        f"{folder} must hold `{KEY}`, the node's own key, and `{PEERS}`, one line for each client "
        f"with its public key and name, found {problem}: put back what `covey deploy init` writes."
    )


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
