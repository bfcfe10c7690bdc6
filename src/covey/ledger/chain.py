"""The hash chain over a ledger's events, and which rounds count after a rollback.

    hash = SHA-256(JSON of [previous hash, round or null, kind, body text])

No clock and no random identifier enters, so that equal runs end in equal heads. A chain shows
every change but one: after its last events are cut off it is intact and shorter, which only a
head kept elsewhere can show.

No event is ever removed from the chain. A rollback is an event between two rounds: what was
recorded before it of its round and of later rounds is superseded, which means sealed and not
counted.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, cast

from covey.base.errors import LedgerError
from covey.base.events import Event, event_from

GENESIS = "0" * 64
"""The head of a ledger that holds nothing yet."""


REWIND = "RunRolledBack"
"""The kind of a record between rounds that rewinds the run; its body's `round_index`
is the first round that no longer counts."""


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
        return LedgerError(f"What is recorded must be an event of this run, found that {problem}.")
    return torn(position, f"an event of this run, found that {problem}")


def torn(position: object, expected: str) -> LedgerError:
    """Return what is raised where a ledger holds something else than this."""
    return LedgerError(
        f"The ledger is broken at position {position}, which must hold {expected}: restore it from "
        f"a copy, as nothing from there on can be trusted."
    )


def event_of(record: Record) -> Event:
    """Return what a ledger's record says, by itself.

    Raises:
        LedgerError: it is no event; the message names its position.
    """
    try:
        return event_from(record.kind, record.body)
    except (ValueError, TypeError, RecursionError) as error:
        raise no_event(record.position, str(error)) from error


def _table(text: str) -> dict[str, Any]:
    table = json.loads(text, parse_constant=_no_number)
    if not isinstance(table, dict):
        raise ValueError(f"a {type(table).__name__} and not a table")  # noqa: TRY004
    return cast("dict[str, Any]", table)


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
            f"An event must hold only what JSON can say, found {error}: give text, numbers or null."
        ) from error


def sealed_text(previous: str, round_index: int | None, kind: str, body: str) -> bytes:
    """Return what the hash of an event covers that follows the hash `previous`."""
    return json.dumps([previous, round_index, kind, body], separators=(",", ":")).encode()


def link(previous: str, round_index: int | None, kind: str, body: str) -> str:
    """Return the hash of an event that follows the hash `previous`."""
    return hashlib.sha256(sealed_text(previous, round_index, kind, body)).hexdigest()


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
    for position, entry in enumerate(links, start=begin + 1):
        head = link(head, entry.round_index, entry.kind, entry.body)
        if (position, head) != (entry.position, entry.hash):
            raise torn(position, "what was sealed, found something else")


def rewound_to(record: Record) -> int | None:
    """Return the round before which the run goes on, where `record` rewinds it.

    Raises:
        LedgerError: it is a rewind that names no round.
    """
    if record.round_index is not None or record.kind != REWIND:
        return None
    match record.body:
        case {"round_index": int(first)} if first >= 0 and not isinstance(first, bool):
            return first
    reason = (
        f"a {REWIND} must name a round to go on before, found {record.body.get('round_index')!r}"
    )
    raise no_event(record.position, reason)


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
            {name: canonical_body({name: value}) for name, value in head.body.items()}
            for head in (old, new)
        )
        names = sorted(before.keys() | after.keys())
        if changed := [name for name in names if before.get(name) != after.get(name)]:
            return f"event {number} ({old.kind}) differs in {', '.join(changed)}"
    return None
