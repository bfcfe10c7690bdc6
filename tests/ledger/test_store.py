import sqlite3
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import NullPool, create_engine, delete

from covey import LedgerError, LedgerMismatch
from covey.ledger.chain import Record
from covey.ledger.rows import seal_tables
from covey.ledger.store import Ledger
from covey.ledger.tables import clients
from ledger.conftest import noon

FACTS = [
    [Record(0, "cohort_sampled", {"clients": ["7f3a", "09bc"]})],
    [
        Record(1, "cohort_sampled", {"clients": []}),
        Record(1, "risk_measured", {"cluster": 0, "risk": 0.625}),
    ],
]
NAMES = {"7f3a": "client-00001", "09bc": "client-00002"}


def written(where: str | Path, rounds: list[list[Record]] = FACTS) -> str:
    """Write a ledger of these rounds and return its head."""
    with Ledger.create(where, noon) as ledger:
        for index, records in enumerate(rounds):
            ledger.append(index, records)
        return ledger.head()


histories = st.lists(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8),
            st.dictionaries(
                st.text(max_size=4),
                st.integers() | st.text() | st.floats(-1e300, 1e300),
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=3,
    ),
    max_size=3,
).map(
    lambda rounds: [
        [Record(index, kind, body) for kind, body in facts] for index, facts in enumerate(rounds)
    ]
)


@pytest.mark.slow
@settings(max_examples=15)
@given(histories)
def test_replaying_gives_what_was_appended(fresh: Callable[[], str], rounds: list[list[Record]]):
    where = fresh()
    head = written(where, rounds)
    ledger = Ledger.read(where)
    assert ledger.replay() == [one for records in rounds for one in records]
    assert ledger.head() == head
    for index, records in enumerate(rounds):
        ledger.compare(index, records)


def test_equal_runs_end_in_equal_heads_whatever_the_clock_says(tmp_path: Path):
    ticks = count()
    with Ledger.create(tmp_path / "a.sqlite", lambda: str(next(ticks))) as ledger:
        ledger.append(0, FACTS[0])
        head = ledger.append(1, FACTS[1])[-1].hash
    assert head == written(tmp_path / "b.sqlite")
    stamps = sqlite3.connect(tmp_path / "a.sqlite")
    assert stamps.execute("SELECT * FROM clock").fetchall() == [(1, "0"), (3, "1")]
    stamps.close()


def test_a_ledger_is_carried_on_where_it_ended(where: str, tmp_path: Path):
    written(where, FACTS[:1])
    with Ledger.open(where, noon) as ledger:
        assert ledger.last_round() == 0
        head = ledger.append(1, FACTS[1])[-1].hash
        ledger.verify()
    assert head == written(tmp_path / "b.sqlite")


def test_a_round_is_appended_once_and_in_order(where: str):
    written(where)
    with Ledger.open(where, noon) as ledger:
        for index, records in enumerate(FACTS):
            with pytest.raises(LedgerError, match=f"found round {index} after 1"):
                ledger.append(index, records)
        assert ledger.replay() == FACTS[0] + FACTS[1]


@pytest.mark.parametrize(
    ("replayed", "difference"),
    [
        (FACTS[1][:1], r"event 2 \(risk_measured\) was recorded only"),
        ([*FACTS[1], Record(1, "more", {})], r"event 3 \(more\) was replayed only"),
        (
            [FACTS[1][0], Record(1, "risk_measured", {"cluster": 0, "risk": 0.626})],
            r"event 2 \(risk_measured\) differs in risk:",
        ),
        (FACTS[1][::-1], "event 1 was cohort_sampled of round 1 and is now risk_meas"),
    ],
)
def test_a_round_that_replays_otherwise_is_named(
    where: str, replayed: list[Record], difference: str
):
    written(where)
    with pytest.raises(LedgerMismatch, match=difference):
        Ledger.read(where).compare(1, replayed)


def test_a_handle_and_a_name_are_bound_once(where: str):
    with Ledger.create(where, noon) as ledger:
        for _ in range(2):
            ledger.enrol(NAMES)
        for handles in ({"7f3a": "other"}, {"eeee": "client-00001"}):
            with pytest.raises(LedgerError, match="a handle or a client bound twice") as no:
                ledger.enrol(handles)
            assert not any(name in str(no.value) for name in ("other", *NAMES.values()))
        assert ledger.names() == NAMES


def test_names_stand_beside_the_events_only(path: Path):
    with Ledger.create(path, noon) as ledger:
        ledger.enrol(NAMES)
        ledger.append(0, FACTS[0])
        shown = f"{ledger!r} {ledger.replay()!r}"
    assert "client-0" not in shown
    assert str(path) in shown
    with create_engine(f"sqlite:///{path}", poolclass=NullPool).begin() as erase:
        erase.execute(delete(clients).where(clients.c.name == "client-00001"))
        seal_tables(erase)
    Ledger.read(path).verify()


def test_a_second_ledger_is_not_begun_over_a_first(where: str):
    head = written(where)
    with pytest.raises(LedgerError, match="must be new, found a ledger"):
        Ledger.create(where, noon)
    assert Ledger.read(where).head() == head


@pytest.mark.parametrize(
    "url",
    ["mysql://covey:secret@host/runs?password=secret", "postgresql://covey:secret@host:port/runs"],
)
def test_another_database_is_refused_without_its_password(url: str):
    with pytest.raises(LedgerError, match="in SQLite or PostgreSQL") as no:
        Ledger.create(url, noon)
    assert "secret" not in str(no.value)
    assert no.value.__cause__ is None or "secret" not in str(no.value.__cause__)


def test_what_was_read_before_is_not_read_again(fresh: Callable[[], str]):
    where, third = fresh(), [Record(2, "cohort_sampled", {"clients": ["7f3a"]})]
    written(where)
    with Ledger.open(where, noon) as ledger:
        before = [*ledger.links()]
        assert [*ledger.pieces(before[-1])] == []
        ledger.append(2, third)
        whole = [*ledger.links()]
        assert whole[:3] == before
        assert [*ledger.pieces(before[-1])] == [whole[3:]]
        assert [*ledger.pieces(before[0])] == [whole[1:]]
        for position in (1, 4, 9):
            other = replace(before[0], position=position, hash="0" * 64)
            with pytest.raises(LedgerError, match="must hold what was read before"):
                next(ledger.pieces(other))
