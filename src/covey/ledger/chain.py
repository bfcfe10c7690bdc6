"""The hash chain and the Merkle tree over it; which rounds still count after a rollback.

The hash chain: every recorded event seals all that came before it.

    hash = SHA-256(JSON of [previous hash, round or null, kind, body text])

Nothing else enters it, no clock and no random identifier, so that equal runs end in
equal heads. A chain shows any change but one: a tail that was cut off leaves a chain
that is whole and shorter, and only a head kept elsewhere can tell.

A Merkle tree over a ledger's events, as transparency logs have it.

    leaf = SHA-256(0x00 || entry)      node = SHA-256(0x01 || left || right)

The entry of an event is its hash in the chain. That hash covers all that came before it,
so nobody can guess what stands behind a neighbour's leaf, and a proof names nobody else.
A proof holds at most ceil(log2 n) + 1 hashes.

Which recorded rounds still count, once a run was rolled back.

Nothing leaves the chain. A record between two rounds says that the story goes on before
some round, and from there on what was recorded of that round and of later ones is
superseded: still sealed, no longer told.

References:
    RFC 6962, Certificate Transparency, section 2.1; RFC 9162, sections 2.1.3.2 and 2.1.4.2
    for the two verifications.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, cast

from covey.base.errors import LedgerError

GENESIS = "0" * 64
"""The head of a ledger that holds nothing yet."""


@dataclass(frozen=True, slots=True)
class Record:
    """One fact; `body` has text keys and only JSON's values.

    Attributes:
        round_index: the round that it is about; None: it happened between two rounds.
        position: where it stands in a ledger that it was read from.
    """

    round_index: int | None
    kind: str
    body: dict[str, Any]
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Link:
    """A record in its place in the chain; positions count from 1.

    Attributes:
        body: the canonical text. It is what the hash covers, so that even a change which
            means the same to JSON (`1e5` to `1E5`) is seen.
    """

    position: int
    round_index: int | None
    kind: str
    body: str
    hash: str

    def record(self) -> Record:
        """Return the fact alone.

        Raises:
            LedgerError: what was sealed here is no table of JSON's values.
        """
        try:
            body = _table(self.body)
        except (ValueError, RecursionError) as error:
            raise no_event(self.position, f"its body is {str(error)!a}") from error
        return Record(self.round_index, self.kind, body, self.position)


def no_event(position: int | None, problem: str) -> LedgerError:
    """Return what is raised where something else than an event of a run was sealed."""
    if position is None:
        return LedgerError(
            f"What is recorded must be an event of this run, but {problem}. Correct it."
        )
    return LedgerError(
        f"The ledger is broken at position {position}: what was sealed there cannot be an "
        f"event of this run, since {problem}. Restore the ledger from a copy."
    )


def _table(text: str) -> dict[str, Any]:
    found = json.loads(text, parse_constant=_no_number)
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__} and not a table")  # noqa: TRY004
    return cast("dict[str, Any]", found)


def _no_number(text: str) -> float:
    raise ValueError(f"a table with the number {text}")


def canonical_body(body: Mapping[str, Any]) -> str:
    """Return the canonical text of `body`: ASCII JSON, keys sorted, no spaces.

    Raises:
        LedgerError: JSON has no word for some value, such as NaN or infinity.
    """
    try:
        return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"An event must hold only what JSON can say, but {error}. "
            f"Turn the value into a text, a number or null before it is recorded."
        ) from error


def link(previous: str, round_index: int | None, kind: str, body: str) -> str:
    """Return the hash of an event that follows the hash `previous`."""
    sealed = json.dumps([previous, round_index, kind, body], separators=(",", ":"))
    return hashlib.sha256(sealed.encode()).hexdigest()


def seal(records: Iterable[Record], after: Link | None) -> list[Link]:
    """Return the links that carry `records` on from the link `after`."""
    position, head = (after.position, after.hash) if after else (0, GENESIS)
    links: list[Link] = []
    for record in records:
        position += 1
        body = canonical_body(record.body)
        head = link(head, record.round_index, record.kind, body)
        links.append(Link(position, record.round_index, record.kind, body, head))
    return links


def verify(links: Iterable[Link], after: Link | None = None) -> None:
    """Check a whole chain, or what carries one on from the link `after`.

    Raises:
        LedgerError: an event was changed, moved, added or taken out.
    """
    begin, head = (after.position, after.hash) if after else (0, GENESIS)
    for position, found in enumerate(links, start=begin + 1):
        head = link(head, found.round_index, found.kind, found.body)
        if (position, head) != (found.position, found.hash):
            raise LedgerError(
                f"The ledger is broken at position {position}: what stands there is "
                f"not what was sealed. Restore the file from a copy; nothing from "
                f"this position on can be trusted."
            )


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


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
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


REWIND = "RunRolledBack"
"""The kind of a record between rounds that rewinds the story; its body's `round_index`
is the first round that no longer counts."""


def rewound_to(record: Record) -> int | None:
    """Return the round before which the story goes on, where `record` rewinds it.

    Raises:
        LedgerError: it is a rewind that names no round.
    """
    if record.round_index is not None or record.kind != REWIND:
        return None
    match record.body:
        case {"round_index": int(first)} if first >= 0 and not isinstance(first, bool):
            return first
    found = (
        f"a {REWIND} must name a round to go on before, found {record.body.get('round_index')!r}"
    )
    raise no_event(record.position, found)


def superseded_up_to(rewinds: Iterable[tuple[int, int]], round_index: int) -> int:
    """Return the position up to which entries of a round are superseded; 0: none are.

    Args:
        rewinds: the position of each rewind, and the round that it rewinds to.
        round_index: the round.
    """
    return max((at for at, first in rewinds if first <= round_index), default=0)


def counts(rewinds: Iterable[tuple[int, int]], position: int, round_index: int | None) -> bool:
    """Say whether an event still counts; what happened between rounds always does."""
    return round_index is None or position > superseded_up_to(rewinds, round_index)


def first_difference(recorded: Sequence[Record], replayed: Sequence[Record]) -> str | None:
    """Return which event differs first and how; its values are not shown."""
    for number, (old, new) in enumerate(zip_longest(recorded, replayed), start=1):
        if old is None or new is None:
            kind, when = (new.kind, "replayed") if new else (old.kind if old else "", "recorded")
            return f"event {number} ({kind}) was {when} only"
        if (old.round_index, old.kind) != (new.round_index, new.kind):
            return (
                f"event {number} was {old.kind} of round {old.round_index} "
                f"and is now {new.kind} of round {new.round_index}"
            )
        before, after = (
            {name: canonical_body({name: value}) for name, value in each.body.items()}
            for each in (old, new)
        )
        names = sorted(before.keys() | after.keys())
        if changed := [name for name in names if before.get(name) != after.get(name)]:
            return f"event {number} ({old.kind}) differs in {', '.join(changed)}"
    return None
