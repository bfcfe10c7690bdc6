"""Secrets that any t of their holders know together, and t - 1 know nothing of.

Kept libraries share 16 bytes at a time in Python's own loops over bits
(`Crypto.Protocol.SecretSharing`), hours for 1,000 clients; this is the polynomial as it is.
"""

from collections.abc import Iterable, Mapping

__all__ = ["PRIME", "SHARE_BYTES", "secret_from", "shares_of"]

PRIME = 2**256 + 297
"""The smallest prime above all 32-byte secrets."""

SHARE_BYTES = 33
COEFFICIENT_BYTES = 48
"""Drawn for one coefficient: reduced by the prime, it is uniform up to 2^-127."""


def shares_of(
    secret: bytes, threshold: int, points: Iterable[int], drawn: bytes
) -> dict[int, bytes]:
    """Return the values of f(x) = secret + c_1 x + ... + c_(t-1) x^(t-1) mod the prime.

    Args:
        secret: 32 bytes.
        threshold: t.
        points: x of each holder, different from each other and from 0.
        drawn: random bytes that are used for nothing else, 48 for each coefficient.

    References:
        Shamir, How to Share a Secret, 1979.
    """
    starts = range(0, COEFFICIENT_BYTES * (threshold - 1), COEFFICIENT_BYTES)
    coefficients = [
        int.from_bytes(drawn[start : start + COEFFICIENT_BYTES], "big") % PRIME
        for start in starts
    ]
    highest_first = [*reversed(coefficients), int.from_bytes(secret, "big")]
    return {x: _value(highest_first, x).to_bytes(SHARE_BYTES, "big") for x in points}


def secret_from(shares: Mapping[int, bytes]) -> bytes | None:
    """Return what these shares are of; None: they are of nothing that was shared.

    Args:
        shares: by point; t of them, or more.
    """
    values = {x: int.from_bytes(share, "big") for x, share in shares.items()}
    found = 0
    for x, value in values.items():
        above, below = 1, 1
        for other in values:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        found += value * above * pow(below, -1, PRIME)
    found %= PRIME
    return found.to_bytes(32, "big") if found < 2**256 else None


def _value(highest_first: list[int], x: int) -> int:
    value = 0
    for coefficient in highest_first:
        value = (value * x + coefficient) % PRIME
    return value
