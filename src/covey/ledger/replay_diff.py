"""How a replayed event differs from the recorded one, in words."""

from collections.abc import Sequence
from itertools import zip_longest

from covey.ledger.chain import Record, canonical

__all__ = ["first_difference"]


def first_difference(
    recorded: Sequence[Record], replayed: Sequence[Record]
) -> str | None:
    """Return which event differs first and how; its values are not shown."""
    for number, (old, new) in enumerate(zip_longest(recorded, replayed), start=1):
        difference = _difference(old, new)
        if difference:
            return f"event {number} {difference}"
    return None


def _difference(old: Record | None, new: Record | None) -> str | None:
    if old is None or new is None:
        known = old or new
        kind = known.kind if known else ""
        return f"({kind}) was {'replayed' if new else 'recorded'} only"
    if (old.round_index, old.kind) != (new.round_index, new.kind):
        return (
            f"was {old.kind} of round {old.round_index} "
            f"and is now {new.kind} of round {new.round_index}"
        )
    before, after = _texts(old), _texts(new)
    names = sorted(before.keys() | after.keys())
    changed = [name for name in names if before.get(name) != after.get(name)]
    return f"({old.kind}) differs in {', '.join(changed)}" if changed else None


def _texts(record: Record) -> dict[str, str]:
    return {name: canonical({name: value}) for name, value in record.body.items()}
