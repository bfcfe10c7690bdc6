"""Who took part: a table made of the events in the transaction that records them.

A row says that a client took part in a round: in which cluster, and in which anonymity set of
the event at its position. Only the events are sealed. The table is compared with them by
`covey doctor` and by who follows a run, and can be made of them anew.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from covey.base.errors import LedgerError
from covey.base.names import Handle
from covey.ledger.chain import Link, Record
from covey.ledger.tables import events, participation


class Place(NamedTuple):
    """A client's place in a round.

    Attributes:
        position: of the event that says so: of sets, where there are any.
        cluster: whose model it trained; None: a user's own algorithm was handed the client.
        set_index: which of the event's anonymity sets held it; None: none did.
    """

    round_index: int
    client: Handle
    position: int
    cluster: int | None
    set_index: int | None


def add_places(connection: Connection, records: Iterable[tuple[int, Record]]) -> None:
    """Write the places of whole rounds that were just recorded, at these positions."""
    for rows in _rows_by_round(records):
        values = [dict(zip(Place._fields, row, strict=True)) for row in rows]
        connection.execute(insert(participation), values)


def rebuild(connection: Connection, links: Iterable[Link]) -> None:
    """Make the whole table anew, of the whole chain."""
    connection.execute(delete(participation))
    add_places(connection, ((one.position, one.record()) for one in links))


def places_of(connection: Connection, client: Handle) -> list[Place]:
    """Return a client's places in order, those in superseded rounds too."""
    # The rows of a round stand together, so that a round is added at the end of the table
    # whoever took part; a client is then looked up once in each round.
    rounds = select(events.c.round_index).distinct().subquery()
    query = (
        select(participation)
        .join(rounds, participation.c.round_index == rounds.c.round_index)
        .where(participation.c.client == client)
        .order_by(participation.c.position)
    )
    return [Place(*row) for row in connection.execute(query)]


def count_places(connection: Connection) -> int:
    """Return how many rows there are."""
    return connection.scalar(select(func.count()).select_from(participation)) or 0


def places_between(connection: Connection, links: Sequence[Link]) -> list[tuple[Any, ...]]:
    """Return the rows of events that follow each other, as they stand."""
    rounds = [one.round_index for one in links if one.round_index is not None]
    if not rounds:
        return []
    query = select(participation).where(
        participation.c.round_index.between(min(rounds), max(rounds)),
        participation.c.position.between(links[0].position, links[-1].position),
    )
    return [tuple(row) for row in connection.execute(query).all()]


def check_places(links: Iterable[Link], rows: Iterable[tuple[Any, ...]]) -> None:
    """Compare rows with the whole, verified rounds that they were made of.

    Raises:
        LedgerError: they say something else.
    """
    records = ((one.position, one.record()) for one in links)
    expected = set(chain.from_iterable(_rows_by_round(records)))
    if wrong := expected.symmetric_difference(rows):
        raise not_the_events(f"in round {min(str(row[0]) for row in wrong)}")


def not_the_events(where: str) -> LedgerError:
    """Return what is raised where the table is not what the events make of it."""
    return LedgerError(
        f"The ledger's table of who took part must hold what its events say, but {where} it "
        f"holds something else. The events are whole: make it anew with `covey doctor --repair`."
    )


def _rows_by_round(records: Iterable[tuple[int, Record]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of each round, in the table's order; tuples, as they can be millions."""
    for t, entry in groupby(records, key=lambda each: each[1].round_index):
        if t is None:
            continue
        named: dict[tuple[Handle, int | None], tuple[int, int | None]] = {}
        for position, record in entry:
            for client, cluster, set_index in _named(record):
                named[client, cluster] = position, set_index
        if named:
            yield sorted((t, one, at, j, c) for (one, j), (at, c) in named.items())


def _named(record: Record) -> Iterable[tuple[Handle, int | None, int | None]]:
    """Return whom an event names, of which cluster, in which set."""
    try:
        match record.kind, record.body:
            case "ClientsAssigned", {"by": by, "clusters": clusters} if by != "final":
                return [(str(one), int(j), None) for one, j in clusters.items()]
            case "AnonymitySetsFormed", {"cluster": j, "sets": sets}:
                return [(str(one), int(j), c) for c, own in enumerate(sets) for one in own]
            case "ClientsHandedOut", {"handles": handles}:
                return [(str(one), None, None) for one in handles]
            case _:
                return ()
    except (TypeError, ValueError, AttributeError):
        return ()  # whoever seals a chain can put anything there; its readers refuse it
