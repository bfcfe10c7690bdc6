"""A Merkle tree over a ledger's events, as transparency logs have it.

    leaf = SHA-256(0x00 || entry)      node = SHA-256(0x01 || left || right)

The entry of an event is its hash in the chain. That hash covers all that came before it,
so nobody can guess what stands behind a neighbour's leaf, and a proof names nobody else.
A proof holds at most ceil(log2 n) + 1 hashes.

References:
    RFC 6962, Certificate Transparency, section 2.1; RFC 9162, sections 2.1.3.2 and 2.1.4.2
    for the two verifications.
"""

import hashlib
from collections.abc import Sequence

__all__ = [
    "EMPTY",
    "consistency_proof",
    "entries_of",
    "inclusion_proof",
    "is_consistent",
    "is_included",
    "leaf_hash",
    "root_of",
]

EMPTY = hashlib.sha256().digest()
"""The root of a tree without leaves."""


def entries_of(hashes: Sequence[str]) -> list[bytes]:
    """Return the leaves of a ledger whose chain has these hashes, in order."""
    return [leaf_hash(bytes.fromhex(each)) for each in hashes]


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of one leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    level = list(leaves)
    while len(level) > 1:
        paired = [_node(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = paired + level[2 * len(paired) :]
    return level[0] if level else EMPTY


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the path that shows that the leaf at `index` is in the tree.

    Raises:
        ValueError: there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise ValueError(f"expected a leaf below {len(leaves)}, found {index}")
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if index < k:
        return [*inclusion_proof(leaves[:k], index), root_of(leaves[k:])]
    return [*inclusion_proof(leaves[k:], index - k), root_of(leaves[:k])]


def consistency_proof(leaves: Sequence[bytes], size: int) -> list[bytes]:
    """Return the path that shows that the first `size` leaves are a tree of before.

    Raises:
        ValueError: the tree of before is empty, or larger than this one.
    """
    if not 0 < size <= len(leaves):
        raise ValueError(f"expected a size from 1 to {len(leaves)}, found {size}")
    return _subproof(leaves, size, whole=True)


def is_included(
    leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes
) -> bool:
    """Say whether a path shows that the leaf hash is at `index` of a tree."""
    if not 0 <= index < size:
        return False
    at, last, found = index, size - 1, leaf
    for other in path:
        if last == 0:
            return False
        if at & 1 or at == last:
            found = _node(other, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = _node(found, other)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def is_consistent(
    sizes: tuple[int, int], roots: tuple[bytes, bytes], path: Sequence[bytes]
) -> bool:
    """Say whether a path shows that the second tree begins with the first one.

    Nothing is to be shown of a tree without leaves: it begins every other one.
    """
    (small, large), (before, after) = sizes, roots
    if not 0 <= small <= large:
        return False
    if small in (0, large):
        return not path and before == (EMPTY if small == 0 else after)
    steps = [*([before] if small & (small - 1) == 0 else []), *path]
    if not steps:
        return False
    return _grown(small - 1, large - 1, steps) == (before, after)


def _grown(at: int, last: int, steps: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return the roots before and after that a path leads to; None: to none."""
    while at & 1:
        at, last = at >> 1, last >> 1
    small = large = steps[0]
    for other in steps[1:]:
        if last == 0:
            return None
        if at & 1 or at == last:
            small, large = _node(other, small), _node(other, large)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            large = _node(large, other)
        at, last = at >> 1, last >> 1
    return (small, large) if last == 0 else None


def _subproof(leaves: Sequence[bytes], size: int, *, whole: bool) -> list[bytes]:
    if size == len(leaves):
        return [] if whole else [root_of(leaves)]
    k = _split(len(leaves))
    if size <= k:
        return [*_subproof(leaves[:k], size, whole=whole), root_of(leaves[k:])]
    return [*_subproof(leaves[k:], size - k, whole=False), root_of(leaves[:k])]


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """Return the largest power of two below a size of 2 or more."""
    return 1 << (size - 1).bit_length() - 1
