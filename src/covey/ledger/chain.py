"""The hash chain: every recorded event seals all that came before it.

    hash = SHA-256(JSON of [previous hash, round or null, kind, body text])

Nothing else enters it, no clock and no random identifier, so that equal runs end in
equal heads. A chain shows any change but one: a tail that was cut off leaves a chain
that is whole and shorter, and only a head kept elsewhere can tell.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from covey.errors import LedgerError
from covey.ledger.packing import PackedBody, canonical

__all__ = [
    "GENESIS",
    "Link",
    "Record",
    "canonical",
    "link",
    "no_event",
    "seal",
    "verify",
]

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
        body: the canonical text, or what it is packed in. The text is what the hash
            covers, so that even a change which means the same to JSON (`1e5` to `1E5`) is
            seen.
    """

    position: int
    round_index: int | None
    kind: str
    body: str | PackedBody
    hash: str

    def record(self) -> Record:
        """Return the fact alone; long lists of clients are columns (`covey.columns`).

        Raises:
            LedgerError: what was sealed here is no table of JSON's values.
        """
        body = self.body
        try:
            found = _table(body) if isinstance(body, str) else body.body()
        except (ValueError, RecursionError) as error:
            raise no_event(self.position, f"its body is {str(error)!a}") from error
        return Record(self.round_index, self.kind, found, self.position)


def no_event(position: int | None, problem: str) -> LedgerError:
    """Return what is raised where something else than an event of a run was sealed."""
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


def link(
    previous: str, round_index: int | None, kind: str, body: str | PackedBody
) -> str:
    """Return the hash of an event that follows the hash `previous`."""
    quoted = (
        json.dumps(body) if isinstance(body, str) else f'"{body.text(escaped=True)}"'
    )
    before = json.dumps([previous, round_index, kind], separators=(",", ":"))
    return hashlib.sha256(f"{before[:-1]},{quoted}]".encode()).hexdigest()


def seal(records: Iterable[Record], after: Link | None) -> list[Link]:
    """Return the links that carry `records` on from the link `after`."""
    position, head = (after.position, after.hash) if after else (0, GENESIS)
    links: list[Link] = []
    for record in records:
        position += 1
        body = canonical(record.body)
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
