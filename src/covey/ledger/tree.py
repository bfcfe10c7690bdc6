"""The Merkle tree over a ledger's events, its signed heads, and proofs of what it holds.

    leaf = SHA-256(0x00 || entry)      node = SHA-256(0x01 || left || right)

The entry of an event is its hash in the chain. That hash covers all that came before it,
so no reader can guess what stands behind a neighbour's leaf, and a proof names no one else.
A proof holds at most ceil(log2 n) + 1 hashes.

A signed head is a checkpoint, as transparency logs share it:

    covey.run/1a2b3c4d5e6f7a8b       the origin: which ledger
    42                               how many events the tree has
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

    - covey.run/1a2b3c4d5e6f7a8b Az3grlgtzPICa5OS8npVmf1Myq/...

(with an em dash before each signature): Ed25519 over the text up to the empty line.

References:
    RFC 6962, Certificate Transparency, section 2.1; RFC 9162, sections 2.1.3.2 and 2.1.4.2
    for the two verifications. C2SP signed-note and tlog-checkpoint.
"""

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidSignature

from covey.base.errors import LedgerError
from covey.base.signature import PublicKey, SigningKey, key_id

_SIGNATURE = re.compile("— ([^\\s+\x00-\x1f]+) ([A-Za-z0-9+/=]+)\n")

_MOST_SIGNATURES = 64


def entries_of(hashes: Sequence[str]) -> list[bytes]:
    """Return the leaves of a ledger whose chain has these hashes, in order."""
    return [leaf_hash(bytes.fromhex(hash_value)) for hash_value in hashes]


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of one leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    level = leaves
    while len(level) > 1:
        level = _above(level)
    return level[0] if level else hashlib.sha256().digest()


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the path that shows that the leaf at `index` is in the tree.

    Raises:
        ValueError: there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise ValueError(f"index must be below {len(leaves)}, found {index}: take a leaf")
    return _beside(leaves, index)


def consistency_proof(leaves: Sequence[bytes], size: int) -> list[bytes]:
    """Return the path that shows that the first `size` leaves are a tree of before.

    Raises:
        ValueError: the tree of before is empty, or larger than this one.
    """
    if not 0 < size <= len(leaves):
        raise ValueError(f"size must be 1 to {len(leaves)}, found {size}: take one of them")
    if size == len(leaves):
        return []
    level, whole = leaves, _whole_levels(size)
    for _ in range(whole):
        level = _above(level)
    at = (size - 1) >> whole
    return [*([level[at]] if at else []), *_beside(level, at)]


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Say whether a path shows that the leaf hash is at `index` of a tree."""
    if not 0 <= index < size:
        return False
    roots = _climb(index, size - 1, leaf, path)
    return roots is not None and roots[1] == root


def is_consistent(
    sizes: tuple[int, int], roots: tuple[bytes, bytes], path: Sequence[bytes]
) -> bool:
    """Say whether a path shows that the second tree begins with the first one.

    Of a tree without leaves nothing can be shown: it begins every other one.
    """
    small, large = sizes
    if not 0 < small <= large:
        return False
    if small == large:
        return not path and roots[0] == roots[1]
    at, last = (size - 1 >> _whole_levels(small) for size in sizes)
    steps = path if at else [roots[0], *path]
    return bool(steps) and _climb(at, last, steps[0], steps[1:]) == roots


def _climb(at: int, last: int, first: bytes, path: Iterable[bytes]) -> tuple[bytes, bytes] | None:
    """Return the roots up to a node and of all that a path leads to from it; None: to none.

    Args:
        at: the node's place on its level.
        last: that of the level's last one.
        first: the node.
        path: the hashes beside it, upwards.
    """
    small = large = first
    for other in path:
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


def _beside(level: Sequence[bytes], at: int) -> list[bytes]:
    """Return the hashes beside a node, upwards from its level."""
    path: list[bytes] = []
    while len(level) > 1:
        path += level[at ^ 1 : (at ^ 1) + 1]  # the last one may stand alone
        level, at = _above(level), at >> 1
    return path


def _above(level: Sequence[bytes]) -> list[bytes]:
    paired = [_node(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
    return [*paired, *level[2 * len(paired) :]]


def _whole_levels(size: int) -> int:
    """Return on how many levels above its leaves a tree's last node covers as many as it can."""
    return (size & -size).bit_length() - 1


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


_NUMBER, _HASH = r"(0|[1-9][0-9]{0,18})", r"[A-Za-z0-9+/]{43}="
_BODY = re.compile(rf"([^\x00-\x1f]+)\n{_NUMBER}\n({_HASH})\n")


@dataclass(frozen=True, slots=True)
class TreeHead:
    """The root of a ledger's tree, and who signed it.

    Attributes:
        origin: which ledger it is of, see `origin_of`.
        size: events in the tree.
        root: of the tree over them.
        signatures: who signed, as it calls itself, and four bytes that name the key with what
            follows them.
    """

    origin: str
    size: int
    root: bytes
    signatures: tuple[tuple[str, bytes], ...] = ()

    @property
    def body(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{_text(self.root)}\n"

    def note(self) -> str:
        """Return the signed note."""
        return "\n".join([self.body, *(f"— {name} {_text(v)}" for name, v in self.signatures), ""])

    @classmethod
    def parse(cls, note: str) -> "TreeHead":
        """Read a signed note; no signature is checked.

        Raises:
            LedgerError: it is none.
        """
        body, _, lines = note.partition("\n\n")
        head = cls._parse_body(f"{body}\n")
        with _one_form():
            signed = [(name, b64decode(value)) for name, value in _SIGNATURE.findall(lines)]
            head = replace(head, signatures=tuple(signed))
            if head.note() != note or not 0 < len(signed) <= _MOST_SIGNATURES:
                raise ValueError("its lines are not those of a signed note")
        return head

    @classmethod
    def _parse_body(cls, text: str) -> "TreeHead":
        """Read the text that is signed.

        Raises:
            LedgerError: it is none.
        """
        with _one_form():
            match = _BODY.fullmatch(text)
            head = cls(match[1], int(match[2]), b64decode(match[3])) if match else None
            text.encode()  # half characters can be in no file
            if head is None or head.body != text or head.size >= 2**63:
                raise ValueError("its lines are not an origin, a size and a root")
        return head

    def signed(self, key: SigningKey) -> "TreeHead":
        """Return the head with the log's own signature."""
        text = self.body.encode()
        value = key_id(self.origin, key.public_key()) + key.sign(text)
        return replace(self, signatures=((self.origin, value),))

    def is_signed_by(self, key: PublicKey) -> bool:
        """Say whether the log signed with this key."""
        text = self.body.encode()
        own = (value for name, value in self.signatures if name == self.origin)
        return any(_is_by(key, self.origin, value, text) for value in own)


def head_of(hashes: Sequence[str]) -> TreeHead:
    """Return the head, not signed, of the tree over a ledger's events, one at least."""
    return TreeHead(origin_of(hashes[0]), len(hashes), root_of(entries_of(hashes)))


def begins_with(hashes: Sequence[str], head: TreeHead) -> bool:
    """Say whether the tree of a head is the start of that over a ledger's events."""
    return 0 < head.size <= len(hashes) and root_of(entries_of(hashes[: head.size])) == head.root


def origin_of(first_hash: str) -> str:
    """Return the name of a ledger's log, from the hash of its first event."""
    return f"covey.run/{first_hash[:16]}"


def _text(value: bytes) -> str:
    return b64encode(value).decode()


@contextmanager
def _one_form() -> Generator[None]:
    """Explain a ValueError of the block."""
    try:
        yield
    except ValueError as error:
        raise LedgerError(
            f"A tree head must be a checkpoint, found {str(error)!a}: fetch it from who signed it."
        ) from error


def _is_by(key: PublicKey, name: str, value: bytes, text: bytes) -> bool:
    """Say whether a signature is a key's over a text: what follows the four bytes that name it."""
    if value[:4] != key_id(name, key):
        return False
    try:
        key.verify(value[4:], text)
    except InvalidSignature:
        return False
    return True
