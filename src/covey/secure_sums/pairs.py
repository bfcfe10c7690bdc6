"""What two neighbours of a round have in common: masks, and keys to seal shares with."""

import hashlib
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import UInt64

from covey.secure_sums.broadcasts import Roster
from covey.secure_sums.masks import add_stream, agreed, derived, stream_bytes
from covey.secure_sums.neighbours import neighbours_of, ring_order
from covey.secure_sums.shamir import COEFFICIENT_BYTES, shares_of
from covey.secure_sums.terms import Terms

__all__ = ["Pairs", "key_commitment", "seed_commitment", "seed_key"]


def key_commitment(share: bytes) -> bytes:
    """Return what binds a client to a share of its masking key, and does not tell it."""
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
        self._keys = {each.sender: each for each in roster.keys}
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
        stream = stream_bytes(key, 2 * need)
        of_key = shares_of(secrets[0], t, points, stream[:need])
        return of_key, shares_of(secrets[1], t, points, stream[need:])

    def bound_to(self, sender: str, recipient: str) -> bytes:
        """Return what sealed shares are bound to: nobody else's, and of no other round."""
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
