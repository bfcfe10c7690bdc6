"""How a client gives its neighbours shares of its secrets, and opens theirs."""

from collections.abc import Collection, Iterator

from covey.secure_sums.broadcasts import Delivery
from covey.secure_sums.masks import private_key, sealed, unsealed
from covey.secure_sums.messages import OpenShare, Sealed
from covey.secure_sums.pairs import Pairs, key_commitment, seed_commitment
from covey.secure_sums.shamir import SHARE_BYTES
from covey.secure_sums.terms import Reason, RefusedError

__all__ = ["open_shares", "sealed_shares"]


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
        content = sealed(key, of_key[x] + of_seed[x], pairs.bound_to(name, other))
        digests = key_commitment(of_key[x]), seed_commitment(of_seed[x])
        yield Sealed(other, content, *digests)


def open_shares(
    pairs: Pairs,
    name: str,
    sealing: bytes,
    given: Collection[Delivery],
    survivors: Collection[str],
) -> Iterator[OpenShare]:
    """Yield one share of each neighbour's secrets; those that do not open are missing.

    Args:
        pairs: of the round.
        name: of the client that opens them.
        sealing: its private key for shares.
        given: what its neighbours sealed for it.
        survivors: of whom it is the seed's; of all others the masking key's.
    """
    own = private_key(sealing)
    for each in given:
        key = pairs.sealing_key(own, name, each.sender, received=True)
        content = unsealed(key, each.content, pairs.bound_to(each.sender, name))
        if content is not None:
            survived = each.sender in survivors
            cut = slice(SHARE_BYTES, None) if survived else slice(SHARE_BYTES)
            yield OpenShare(each.sender, content[cut])
