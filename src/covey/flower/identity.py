"""Who a node is, as far as the SuperLink vouches for it; and whose a client's name is."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.proto.node_pb2 import NodeInfo

from covey.flower.messages import InvalidMessageError
from covey.types import ClientName

__all__ = ["NameBindings", "NodeIdentity", "check_attested", "identity_of"]

PEM = b"-----BEGIN"
"""How a public key begins; nodes of a simulation have random bytes instead."""


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


def check_attested(name: ClientName, node: NodeIdentity) -> None:
    """Refuse a name whose organisation is attested, with a key that is not registered.

    Raises:
        InvalidMessageError: the operator registered no such key under this name.
    """
    if not node.key or node.name != name:
        raise InvalidMessageError(
            "its organisation is attested for a key that is registered under its name: "
            "register its key (register.sh)"
        )


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
            raise InvalidMessageError(
                "its key was registered under another name: give it that one"
            )
        if self._keys.get(name, node.key) != node.key and not registered:
            raise InvalidMessageError(
                "its name belongs to another key: give it a name of its own, or register "
                "its key under this one"
            )
        if node.key and node.key in (k for n, k in self._keys.items() if n != name):
            raise InvalidMessageError(
                "its key belongs to another client's name: one key, one client"
            )
        if node.key:
            self._keys[name] = node.key

    def keys(self) -> Mapping[ClientName, str]:
        """Return the fingerprint of the key of each client that has come."""
        return dict(self._keys)
