"""Masks, shares and keys: what two neighbours of a round have in common."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jaxtyping import UInt64

from covey.secure_sums.messages import (
    COEFFICIENT_BYTES,
    SHARE_BYTES,
    Delivery,
    OpenShare,
    Reason,
    RefusedError,
    Roster,
    Sealed,
    Terms,
    shares_of,
)

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


def agreed(private: X25519PrivateKey, public: bytes, salt: bytes, purpose: bytes) -> bytes:
    """Return the secret of two keys for one purpose, 32 bytes.

    Raises:
        ValueError: the public key is of low order.
    """
    shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    return derived(shared, salt, purpose)


def derived(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """Return what HKDF-SHA256 makes of a secret for one purpose, 32 bytes."""
    return HKDF(SHA256(), 32, salt, purpose).derive(secret)


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


def ring_order(names: Sequence[str], salt: bytes) -> tuple[str, ...]:
    """Return the names in an order that the salt draws, and anybody can compute."""
    return tuple(sorted(names, key=lambda n: hashlib.sha256(salt + n.encode()).digest()))


def neighbours_of(order: Sequence[str], name: str, degree: int) -> tuple[str, ...]:
    """Return the k / 2 names on each side on the ring; all others if k is that many."""
    if degree >= len(order) - 1:
        return tuple(other for other in order if other != name)
    here, half = order.index(name), degree // 2
    steps = (*range(-half, 0), *range(1, half + 1))
    return tuple(order[(here + step) % len(order)] for step in steps)


DROPPING, COLLUDING = 0.3, 0.1
"""Shares of the clients that drop out, and that hand the server all they have."""

LOST, EXPOSED = 2**-10, 2**-40
"""The largest chances that a round has no sum, as some client's mask cannot be taken off,
and that more is learnt than one sum over all honest clients: that some client's neighbours
on the server's side reach the threshold, or that the honest ones fall apart into several
sums."""


def neighbourhood(clients: int) -> int:
    """Return k, the fewest neighbours with these chances of failure; or that of all others.

    It is even. Clients are on the ring in a random order. Of the k neighbours of one, the
    number that drop out or collude is hypergeometric; by the union bound over all n clients

        lost    <= n P[Hyp(n - 1, (1 - dropping) n, k) < t]
        exposed <= n P[Hyp(n - 1, colluding n, k) >= t] + n (dropping + colluding)^(k / 2)

    with a threshold t of more than half of k. The last term: honest clients fall apart only
    where k / 2 in a row are gone.

    References:
        Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead,
        2020: the graph, and the three events. The bounds here are the exact tails.
    """
    from scipy.stats import hypergeom  # slow to import, and no client asks

    n, gone, bad = clients, int(DROPPING * clients), int(COLLUDING * clients)
    for k in range(2, n - 1, 2):
        fails = n * float(hypergeom(n - 1, n - 1 - gone, k).cdf(k // 2))
        apart = n * ((gone + bad) / n) ** (k // 2)
        if fails <= LOST and n * float(hypergeom(n - 1, bad, k).sf(k // 2)) + apart <= EXPOSED:
            return k
    return n - 1 + (n - 1) % 2


@runtime_checkable
class Identities(Protocol):
    """A client's own key, and those by which it checks the others."""

    def sign(self, content: bytes) -> bytes:
        """Return the client's signature, at most 256 bytes."""
        ...

    def has_signed(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say whether the client of this name signed that content."""
        ...


class Unsigned:
    """For rounds in which no client signs: it accepts no signature."""

    def sign(self, content: bytes) -> bytes:
        """Return nothing."""
        del content
        return b""

    def has_signed(self, name: str, signature: bytes, content: bytes) -> bool:
        """Say no."""
        del name, signature, content
        return False


def key_commitment(share: bytes) -> bytes:
    """Return what binds a client to a share of its masking key, and does not reveal it."""
    return hashlib.sha256(b"covey secure sums: key share" + share).digest()


def seed_commitment(share: bytes) -> bytes:
    """Return the same of its self-mask's seed."""
    return hashlib.sha256(b"covey secure sums: seed share" + share).digest()


def seed_key(seed: bytes, terms: Terms) -> bytes:
    """Return the key of a client's self-mask."""
    return derived(seed, terms.session, b"covey secure sums: self-mask")


class Pairs:
    """The neighbours of one roster.

    All secrets hang on the session and the whole roster: clients to whom the server showed
    different rosters have no mask in common, and cannot read each other's shares.
    """

    def __init__(self, terms: Terms, roster: Roster) -> None:
        self._terms, self._roster = terms, roster
        self._digest = roster.digest()
        self._keys = {key.sender: key for key in roster.keys}
        self._points = {name: x for x, name in enumerate(roster.names, start=1)}

    def __len__(self) -> int:
        """Return how many clients there are."""
        return len(self._keys)

    @cached_property
    def _order(self) -> tuple[str, ...]:
        return ring_order(self._roster.names, self._digest)

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return with whom a client shares masks and secrets."""
        return neighbours_of(self._order, name, self._terms.degree(len(self)))

    def masking_key(self, name: str) -> bytes:
        """Return the public key that a client's pairwise masks are made of."""
        return self._keys[name].masking

    def point(self, name: str) -> int:
        """Return where the polynomials of others have the value that this client holds."""
        return self._points[name]

    def shares(
        self, name: str, secrets: tuple[bytes, bytes], drawn: bytes
    ) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Return the neighbours' shares of a client's two secrets, by point.

        Args:
            name: the client.
            secrets: its masking key, and the seed of its self-mask.
            drawn: 32 random bytes, of which the coefficients are made.
        """
        t = self._terms.threshold(len(self))
        points = [self.point(other) for other in self.neighbours(name)]
        need = COEFFICIENT_BYTES * (t - 1)
        key = derived(drawn, self._digest, b"covey secure sums: coefficients")
        # ChaCha20's stream under a key that is used once
        stream = Cipher(ChaCha20(key, NO_NONCE), mode=None).encryptor().update(bytes(2 * need))
        of_key = shares_of(secrets[0], t, points, stream[:need])
        return of_key, shares_of(secrets[1], t, points, stream[need:])

    def bound_to(self, sender: str, recipient: str) -> bytes:
        """Return what sealed shares are bound to: no one else's, and no other round's."""
        return self._purpose(b"sealed", sender, recipient)

    def sealing_key(
        self, private: X25519PrivateKey, own: str, other: str, *, received: bool = False
    ) -> bytes:
        """Return the key of what `own` seals for another, or of what it received.

        Raises:
            ValueError: the other's key makes no secret.
        """
        pair = (other, own) if received else (own, other)
        purpose = self._purpose(b"sealing", *pair)
        public = self._keys[other].sealing
        return agreed(private, public, self._terms.session, purpose)

    def add_mask(
        self,
        numbers: UInt64[np.ndarray, " numbers"],
        private: X25519PrivateKey,
        own: str,
        other: str,
    ) -> None:
        """Add the mask of a pair as `own` does: the other takes off the same one.

        Args:
            numbers: changed in place.
            private: the masking key of `own`.
            own: whose half of the pair this is.
            other: its neighbour.

        Raises:
            ValueError: the other's key makes no secret.
        """
        purpose = self._purpose(b"mask", *sorted((own, other)))
        public = self._keys[other].masking
        key = agreed(private, public, self._terms.session, purpose)
        add_stream(numbers, key, sign=1 if own < other else -1)

    def _purpose(self, what: bytes, first: str, second: str) -> bytes:
        names = b"".join(hashlib.sha256(n.encode()).digest() for n in (first, second))
        return b"covey secure sums: " + what + self._digest + names


def sealed_shares(
    pairs: Pairs, name: str, sealing: bytes, secrets: tuple[bytes, bytes], drawn: bytes
) -> Iterator[Sealed]:
    """Yield a client's shares for each of its neighbours.

    Args:
        pairs: of the round.
        name: the client's.
        sealing: its private key for shares.
        secrets: its masking key, and the seed of its own mask.
        drawn: 32 random bytes, of which the polynomials are made.

    Raises:
        RefusedError: a neighbour's key makes no secret.
    """
    own = private_key(sealing)
    of_key, of_seed = pairs.shares(name, secrets, drawn)
    for other in pairs.neighbours(name):
        x = pairs.point(other)
        try:
            key = pairs.sealing_key(own, name, other)
        except ValueError:
            raise RefusedError(Reason.WEAK_KEY, other) from None
        both, bound_to = of_key[x] + of_seed[x], pairs.bound_to(name, other)
        content = ChaCha20Poly1305(key).encrypt(AEAD_NONCE, both, bound_to)
        digests = key_commitment(of_key[x]), seed_commitment(of_seed[x])
        yield Sealed(other, content, *digests)


def open_shares(
    pairs: Pairs,
    name: str,
    sealing: bytes,
    deliveries: Collection[Delivery],
    survivors: Collection[str],
) -> Iterator[OpenShare]:
    """Yield one share of each neighbour's secrets; those that do not open are missing.

    Args:
        pairs: of the round.
        name: of the client that opens them.
        sealing: its private key for shares.
        deliveries: what its neighbours sealed for it.
        survivors: of whom it is the seed's; of all others the masking key's.
    """
    own = private_key(sealing)
    for delivery in deliveries:
        key = pairs.sealing_key(own, name, delivery.sender, received=True)
        bound_to = pairs.bound_to(delivery.sender, name)
        try:
            both = ChaCha20Poly1305(key).decrypt(AEAD_NONCE, delivery.content, bound_to)
        except InvalidTag:  # not sealed with this key, or changed
            continue
        survived = delivery.sender in survivors
        yield OpenShare(delivery.sender, both[SHARE_BYTES:] if survived else both[:SHARE_BYTES])
