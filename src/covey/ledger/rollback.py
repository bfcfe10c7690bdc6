"""Which recorded rounds still count, once a run was rolled back.

Nothing leaves the chain. A record between two rounds says that the story goes on before
some round, and from there on what was recorded of that round and of later ones is
superseded: still sealed, no longer told.
"""

import math
from collections.abc import Iterable, Sequence

from covey.errors import LedgerError
from covey.ledger.chain import Record, no_event

__all__ = ["REWIND", "current_records", "rewound_to", "superseded", "superseded_up_to"]

REWIND = "RunRolledBack"
"""The kind of a record between rounds that rewinds the story; its body's `round_index`
is the first round that no longer counts."""


def current_records(records: Sequence[Record]) -> list[Record]:
    """Return the current events: superseded rounds are left out, the order is kept.

    What happened between rounds stays, rewinds included.
    """
    return [record for record, counts in _with_currency(records) if counts]


def superseded(records: Sequence[Record]) -> list[Record]:
    """Return what no longer counts, in order: what it released stays released."""
    return [record for record, counts in _with_currency(records) if not counts]


def _with_currency(records: Sequence[Record]) -> list[tuple[Record, bool]]:
    """Say of each record whether it still counts."""
    judged: list[tuple[Record, bool]] = []
    first_superseded = math.inf  # by the rewinds that come later in `records`
    for record in reversed(records):
        t = record.round_index
        judged.append((record, t is None or t < first_superseded))
        rewound = rewound_to(record)
        if rewound is not None:
            first_superseded = min(first_superseded, rewound)
    return judged[::-1]


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
    if record.position is not None:
        raise no_event(record.position, "it names no round to go on before")
    raise LedgerError(
        f"A record {REWIND} must name a round to go on before, 0 or later, as "
        f"`round_index`, but it holds {record.body.get('round_index')!r} there. "
        f"Record the first round that no longer counts."
    )


def superseded_up_to(rewinds: Iterable[tuple[int, int]], round_index: int) -> int:
    """Return the position up to which entries of a round are superseded; 0: none are.

    Args:
        rewinds: the position of each rewind, and the round that it rewinds to.
        round_index: the round.
    """
    return max((at for at, first in rewinds if first <= round_index), default=0)
