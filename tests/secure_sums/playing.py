"""Rounds of secure sums as tests play them: seeded, and all that is sent is kept."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from covey import Streams
from covey.secure_sums.client import ClientRound
from covey.secure_sums.messages import SecureSum, Terms
from covey.secure_sums.server import ServerRound

LENGTH = 5


def terms(length=LENGTH, **arguments) -> Terms:
    return Terms(bytes(range(32)), length, **arguments)


def seeded(*path) -> Callable[[int], bytes]:
    return Streams(0).at(*path).generator().bytes


def numbers(clients: int, length=LENGTH) -> dict[str, np.ndarray]:
    drawn = Streams(1).at("numbers").generator().integers(0, 2**40, (clients, length))
    return {f"client-{i:03}": row for i, row in enumerate(drawn)}


@dataclass(frozen=True, slots=True)
class Ed25519Identities:
    """Keys of Ed25519: a client's own, and everybody's public one by name."""

    own: Ed25519PrivateKey = field(repr=False)
    known: Mapping[str, Ed25519PublicKey]

    def sign(self, content: bytes) -> bytes:
        """Return the client's signature."""
        return self.own.sign(content)

    def has_signed(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say whether the client of this name signed that content."""
        if name not in self.known:
            return False
        try:
            self.known[name].verify(signature, content)
        except InvalidSignature:
            return False
        return True


def identities(names: Collection[str]) -> dict[str, Ed25519Identities]:
    keys = {n: Ed25519PrivateKey.from_private_bytes(seeded(n)(32)) for n in names}
    public = {name: key.public_key() for name, key in keys.items()}
    return {name: Ed25519Identities(key, public) for name, key in keys.items()}


def smallest_part(sums) -> int:
    """Return how many clients were in exactly the same of these sums, at least.

    All that can be computed from the sums is a sum over such parts.
    """
    within = defaultdict(list)
    for index, clients in enumerate(sums):
        for client in clients:
            within[client].append(index)
    return min(Counter(map(tuple, within.values())).values(), default=0)


@dataclass(frozen=True)
class Playing:
    """A round between two steps, and all that was sent."""

    terms: Terms
    values: Mapping[str, np.ndarray]
    server: ServerRound
    sides: Mapping[str, ClientRound]
    sent: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, values, agreed, seed="round") -> "Playing":
        sides = {n: ClientRound.begin(agreed, n, draw=seeded(seed, n)) for n in values}
        return cls(agreed, values, ServerRound(agreed, tuple(values)), sides)

    def without(self, gone: Collection[str]) -> "Playing":
        stay = {name: side for name, side in self.sides.items() if name not in gone}
        return replace(self, sides=stay)

    def step(self, what: str, act) -> "Playing":
        """Let every client act, and the server take what it sends."""
        server, sides, sent = self.server, dict(self.sides), {}
        for name, side in self.sides.items():
            sides[name], sent[name] = act(name, side)
            server = server.accept(name, sent[name])
        return replace(self, server=server, sides=sides, sent={**self.sent, what: sent})

    def closed(self) -> tuple["Playing", Mapping[str, bytes]]:
        """End a step at the server: with what is sent next."""
        server, letters = self.server.close()
        return replace(self, server=server), letters

    def keys(self) -> "Playing":
        known = identities(self.values) if self.terms.signed else {}
        return self.step("keys", lambda n, c: c.advertise(*_own(known, n)))

    def shares(self) -> "Playing":
        known = identities(self.values) if self.terms.signed else {}
        after, roster = self.closed()
        return after.step("shares", lambda n, c: c.share(roster[n], *_own(known, n)))

    def masked(self) -> "Playing":
        after, deliveries = self.closed()
        return after.step("masked", lambda n, c: c.mask(deliveries[n], self.values[n]))

    def opened(self) -> "Playing":
        after, survivors = self.closed()
        if not self.terms.signed:
            return after.step("unmasking", lambda n, c: c.unmask(survivors[n]))
        known = identities(self.values)
        after, signed = after.step(
            "agreements", lambda n, c: c.agree(survivors[n], known[n])
        ).closed()
        return after.step("unmasking", lambda n, c: c.unmask_signed(signed[n], known[n]))

    def sum(self) -> SecureSum:
        result = self.server.close()[0].result
        assert result is not None
        return result


def _own(known, name):
    return (known[name],) if known else ()


def played(values, agreed, seed="round"):
    """Return a whole round in which everybody stays."""
    return Playing.of(values, agreed, seed).keys().shares().masked().opened()


def total(values, names) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.sum([values[name] for name in names], axis=0)
