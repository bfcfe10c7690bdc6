"""How the server takes the masks off a sum, with the shares that survivors opened."""

import hashlib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt64

from covey.secure_sums.masks import add_stream, private_key, public_of
from covey.secure_sums.messages import OpenShare, Sealed, Shares, Unmasking
from covey.secure_sums.pairs import Pairs, key_commitment, seed_commitment, seed_key
from covey.secure_sums.shamir import secret_from
from covey.secure_sums.terms import Reason, RefusedError, RoundGivenUpError, Terms

__all__ = ["kept_shares", "without_masks"]


@runtime_checkable
class Masked(Protocol):
    """What a server holds of a round in which numbers were sent."""

    @property
    def shares(self) -> tuple[Shares, ...]:
        """Who shared secrets, and what it committed to."""
        ...

    @property
    def masked(self) -> tuple[str, ...]:
        """Whose numbers are in the sum."""
        ...

    @property
    def unmaskings(self) -> tuple[Unmasking, ...]:
        """What was opened."""
        ...


def kept_shares(
    opened: Unmasking, pairs: Pairs, held: Masked
) -> tuple[Unmasking, tuple[OpenShare, ...]]:
    """Return a message with the shares that are as committed to, and the others.

    Raises:
        RefusedError: it opens what its sender does not hold, or opens it twice.
    """
    owners = [each.owner for each in opened.shares]
    by_owner = {each.sender: each for each in held.shares}
    may = set(pairs.neighbours(opened.sender)) & by_owner.keys()
    if len(set(owners)) < len(owners) or not set(owners) <= may:
        raise RefusedError(Reason.WRONG_CLIENTS, opened.sender)

    def is_committed(share: OpenShare) -> bool:
        sealed = _sealed_for(by_owner[share.owner], opened.sender)
        if share.owner in held.masked:
            return sealed.seed_commitment == seed_commitment(share.share)
        return sealed.key_commitment == key_commitment(share.share)

    forged = tuple(each for each in opened.shares if not is_committed(each))
    kept = tuple(each for each in opened.shares if each not in forged)
    return replace(opened, shares=kept), forged


def without_masks(
    numbers: UInt64[np.ndarray, " numbers"], pairs: Pairs, terms: Terms, held: Masked
) -> None:
    """Take all masks off the sum of the survivors' masked numbers, in place.

    Survivors' own masks are subtracted; of who is gone, its half of every pairwise mask is
    added, as it would have been.

    Raises:
        RoundGivenUpError: a mask cannot be taken off.
    """
    opened: dict[str, dict[int, bytes]] = defaultdict(dict)
    for each in held.unmaskings:
        for share in each.shares:
            opened[share.owner][pairs.point(each.sender)] = share.share
    survivors = set(held.masked)
    threshold = terms.threshold(len(pairs))
    for owner in held.shares:
        shares = opened[owner.sender]
        left = survivors.intersection(pairs.neighbours(owner.sender))
        if owner.sender in survivors:
            seed = _secret(shares, threshold, owner.sender)
            if hashlib.sha256(seed).digest() != owner.seed_digest:
                raise _unshared(owner.sender)
            add_stream(numbers, seed_key(seed, terms), sign=-1)
        elif left:
            private = _secret(shares, threshold, owner.sender)
            _complete(numbers, pairs, private, owner.sender, sorted(left))


def _complete(
    numbers: UInt64[np.ndarray, " numbers"],
    pairs: Pairs,
    private: bytes,
    gone: str,
    left: Collection[str],
) -> None:
    if public_of(private) != pairs.masking_key(gone):
        raise _unshared(gone)
    key = private_key(private)
    for other in left:
        pairs.add_mask(numbers, key, gone, other)


def _secret(shares: dict[int, bytes], threshold: int, owner: str) -> bytes:
    if len(shares) < threshold:
        found = f"Found {len(shares)} of {threshold} shares of {owner}'s secret."
        raise RoundGivenUpError(Reason.TOO_FEW_SHARES, found)
    secret = secret_from(dict(sorted(shares.items())[:threshold]))
    if secret is None:
        raise _unshared(owner)
    return secret


def _unshared(owner: str) -> RoundGivenUpError:
    details = f"The shares that {owner} gave away are of no secret that it has."
    return RoundGivenUpError(Reason.FORGED_SHARE, details)


def _sealed_for(shares: Shares, recipient: str) -> Sealed:
    return next(each for each in shares.sealed if each.recipient == recipient)
