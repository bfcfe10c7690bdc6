"""Who took part: a table made of the events in the transaction that records them.

A row says that the event at its position names a client: of which cluster's model, and in
which of the event's anonymity sets. Only the events are sealed. The table is compared with
them by `covey doctor` and by who follows a run, and can be made of them anew.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from covey.base.errors import LedgerError
from covey.base.names import Handle
from covey.ledger.chain import Link, Record
from covey.ledger.tables import events, participation


class Place(NamedTuple):
    """A client's place in one event.

    Attributes:
        cluster: whose model it trained; None: a user's own algorithm was handed the client.
        set_index: which of the event's anonymity sets held it; None: the event forms none.
    """

    round_index: int
    client: Handle
    position: int
    cluster: int | None
    set_index: int | None


def add_places(connection: Connection, position: int, record: Record) -> None:
    """Write the places of an event that was just recorded."""
    rows = [dict(zip(Place._fields, row, strict=True)) for row in _rows(position, record)]
    if rows:
        connection.execute(insert(participation), rows)


def rebuild(connection: Connection, links: Iterable[Link]) -> None:
    """Make the whole table anew, of the whole chain."""
    connection.execute(delete(participation))
    for one in links:
        add_places(connection, one.position, one.record())


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
    """Compare rows with the verified events that they were made of.

    Raises:
        LedgerError: they say something else.
    """
    expected = {row for one in links for row in _rows(one.position, one.record())}
    if wrong := expected.symmetric_difference(rows):
        raise not_the_events(f"in round {min(str(row[0]) for row in wrong)}")


def not_the_events(where: str) -> LedgerError:
    """Return what is raised where the table is not what the events make of it."""
    return LedgerError(
        f"The ledger's table of who took part must hold what its events say, but {where} it "
        f"holds something else. The events are whole: make it anew with `covey doctor --repair`."
    )


_Named = Iterable[tuple[Handle, tuple[int | None, int | None]]]


def _rows(position: int, record: Record) -> Iterator[tuple[Any, ...]]:
    """Yield each client's place in one event, once; a tuple, as they can be millions."""
    if record.round_index is None or record.kind not in _NAMED:
        return
    try:
        named = dict(_NAMED[record.kind](record.body))
    except (LookupError, TypeError, ValueError, AttributeError):
        return  # whoever seals a chain can put anything there; its readers refuse it
    for client, (cluster, set_index) in named.items():
        yield record.round_index, client, position, cluster, set_index


def _assigned(body: Mapping[str, Any]) -> _Named:
    if body["by"] == "final":
        return ()
    return ((str(client), (int(j), None)) for client, j in body["clusters"].items())


def _formed(body: Mapping[str, Any]) -> _Named:
    cluster = int(body["cluster"])
    return (
        (str(client), (cluster, c)) for c, members in enumerate(body["sets"]) for client in members
    )


def _handed_out(body: Mapping[str, Any]) -> _Named:
    return ((str(client), (None, None)) for client in body["handles"])


_NAMED: Mapping[str, Callable[[Mapping[str, Any]], _Named]] = {
    "ClientsAssigned": _assigned,
    "AnonymitySetsFormed": _formed,
    "ClientsHandedOut": _handed_out,
}
"""The kinds of events that name participants, and how they do."""
