"""The table of who took part is what the events say, and is compared with them."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from covey import LedgerError
from covey.base.events import (
    AnonymitySetsFormed,
    ClientsAssigned,
    ClientsHandedOut,
    Event,
    kind_and_body,
)
from covey.ledger.chain import REWIND, Record
from covey.ledger.store import Ledger
from ledger.conftest import noon

HANDLES = [f"h{n:02}" for n in range(12)]
some = st.lists(st.sampled_from(HANDLES), unique=True, max_size=6).map(tuple)
# made in the test: who checks types draws at random, which strategies must not
events = st.one_of(
    some.map(
        lambda own: partial(ClientsAssigned, {h: i % 3 for i, h in enumerate(own)}, "clients")
    ),
    some.map(lambda own: partial(AnonymitySetsFormed, 1, (own[:3], own[3:]), (0.5, None))),
    some.map(lambda own: partial(ClientsHandedOut, own)),
)
rounds = st.lists(st.lists(events, min_size=1, max_size=3), min_size=1, max_size=5)


def records(t: int | None, *facts: Event) -> list[Record]:
    return [Record(t, *kind_and_body(each)) for each in facts]


def named(event: Event, client: str) -> tuple[int | None, int | None] | None:
    """The cluster and the set in which an event names a client."""
    match event:
        case ClientsAssigned(clusters, "clients") if client in clusters:
            return clusters[client], None
        case AnonymitySetsFormed(cluster, sets):
            return next(((cluster, c) for c, own in enumerate(sets) if client in own), None)
        case ClientsHandedOut(handles) if client in handles:
            return None, None
        case _:
            return None


def expected(told: list[tuple[int, int, Event]], client: str) -> list[tuple[object, ...]]:
    """Of what names a client twice in a round and a cluster, the last counts."""
    found = {
        (t, place[0]): (t, client, at, *place)
        for t, at, event in told
        if (place := named(event, client)) is not None
    }
    return sorted(found.values(), key=itemgetter(2))


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(rounds, st.integers(0, 4))
def test_the_table_says_what_the_events_say(
    fresh: Callable[[], str], drawn: list[list[Callable[[], Event]]], first: int
):
    played = [[make() for make in each] for each in drawn]
    with Ledger.create(fresh(), noon) as ledger:
        position, told = 0, list[tuple[int, int, Event]]()

        def play(t: int) -> None:
            nonlocal position
            ledger.append(t, records(t, *played[t]))
            told.extend((t, position + i, each) for i, each in enumerate(played[t], 1))
            position += len(played[t])

        for t in range(len(played)):
            play(t)
        if first < len(played):
            ledger.append_between([Record(None, REWIND, {"round_index": first})])
            position += 1
            told = [each for each in told if each[0] < first]
            play(first)
        for client in HANDLES:
            assert ledger.look_at(client)[0] == expected(told, client)
        ledger.check_participation()
        known = [ledger.look_at(client)[0] for client in HANDLES]
        ledger.rebuild_participation()
        assert [ledger.look_at(client)[0] for client in HANDLES] == known


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("DELETE FROM participation WHERE round = 1 AND client = 'h01'", "in round 1"),
        ("UPDATE participation SET cluster = 2 WHERE round = 0 AND client = 'h00'", "in round 0"),
        ("UPDATE participation SET client = 'h1' WHERE client = 'h00'", "in round 0"),
        ("UPDATE participation SET cluster = 'x' WHERE round = 1", "in round 1"),
        ("INSERT INTO participation VALUES (7, 'h00', 1, 0, 0)", "of rounds that were not played"),
        ("INSERT INTO participation VALUES (1, 'h00', 9, 0, 0)", "of rounds that were not played"),
    ],
)
def test_a_table_that_was_changed_is_seen_and_made_anew(tmp_path: Path, change: str, where: str):
    path = tmp_path / "ledger.sqlite"
    chosen = ClientsAssigned({"h00": 0, "h01": 1}, "clients")
    with Ledger.create(path, noon) as ledger:
        for t in range(2):
            ledger.append(t, records(t, chosen))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text(change))
    engine.dispose()
    with Ledger.open(path, noon) as ledger:
        ledger.verify()  # the chain is whole
        with pytest.raises(LedgerError, match=where):
            ledger.check_participation()
        ledger.rebuild_participation()
        ledger.check_participation()
        assert [each.cluster for each in ledger.look_at("h01")[0]] == [1, 1]
