"""How far a run is, from a few rows of its ledger, however long that is."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from covey.ledger import rows
from covey.ledger.chain import GENESIS, Record
from covey.ledger.tables import clients, clock

__all__ = ["Overview", "read_overview"]


ENDED = "RunEndedEarly"
"""The kind of a record between rounds after which no further round is played."""


@dataclass(frozen=True, slots=True)
class Overview:
    """What a ledger's newest rows say; the chain before them is not verified.

    Attributes:
        events: how many there are.
        last_kind: of the newest event; "": there is none.
        written_at: when that was recorded, ISO 8601; "": never.
        last_round: the newest round that counts.
        first_round: what counts of round 0, where a run says how it began.
        ended: what says that the run ended early, if it did.
        clients: those whose names are known: they have not left.
    """

    events: int
    head: str
    last_kind: str
    written_at: str
    last_round: int | None
    first_round: tuple[Record, ...]
    ended: tuple[Record, ...]
    clients: int


def read_overview(connection: Connection) -> Overview:
    """Return how far the run is.

    Raises:
        LedgerError: what stands in a row is no event.
    """
    last = rows.last_link(connection)
    newest = select(clock.c.written_at).order_by(clock.c.position.desc()).limit(1)
    return Overview(
        events=last.position if last else 0,
        head=last.hash if last else GENESIS,
        last_kind=last.kind if last else "",
        written_at=connection.scalar(newest) or "",
        last_round=rows.last_round(connection),
        first_round=tuple(each.record() for each in rows.read_round(connection, 0)),
        ended=tuple(each.record() for each in rows.read_between(connection, ENDED)),
        clients=connection.scalar(select(func.count()).select_from(clients)) or 0,
    )
