import sqlite3
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, delete

from covey import LedgerError, LedgerMismatch
from covey.ledger.chain import GENESIS, Record
from covey.ledger.rows import seal_tables
from covey.ledger.store import Ledger
from covey.ledger.tables import clients

FACTS = [
    [Record(0, "cohort_sampled", {"clients": ["7f3a", "09bc"]})],
    [
        Record(1, "cohort_sampled", {"clients": []}),
        Record(1, "risk_measured", {"cluster": 0, "risk": 0.625}),
    ],
]
NAMES = {"7f3a": "client-00001", "09bc": "client-00002"}


def noon() -> str:
    return "2030-01-01T12:00:00Z"


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


def test_a_new_ledger_holds_nothing(where: str):
    with Ledger.create(where, noon) as ledger:
        assert ledger.replay() == []
        assert ledger.last_round() is None
        assert ledger.head() == GENESIS
        assert ledger.names() == {}


def test_equal_runs_end_in_equal_heads_whatever_the_clock_says(tmp_path: Path):
    ticks = count()
    with Ledger.create(tmp_path / "a.sqlite", lambda: str(next(ticks))) as ledger:
        ledger.append(0, FACTS[0])
        head = ledger.append(1, FACTS[1])
    assert head == written(tmp_path / "b.sqlite")
    stamps = sqlite3.connect(tmp_path / "a.sqlite")
    assert stamps.execute("SELECT * FROM clock").fetchall() == [(1, "0"), (3, "1")]
    stamps.close()


def test_a_ledger_is_carried_on_where_it_ended(where: str, tmp_path: Path):
    written(where, FACTS[:1])
    with Ledger.open(where, noon) as ledger:
        assert ledger.last_round() == 0
        head = ledger.append(1, FACTS[1])
        ledger.verify()
    assert head == written(tmp_path / "b.sqlite")


def test_a_file_has_a_url_too(path: Path):
    head = written(f"sqlite:///{path}")
    assert Ledger.read(path).head() == head


def test_a_ledger_exists_once_it_is_laid_out(where: str):
    assert not Ledger.exists(where)
    written(where)
    assert Ledger.exists(where)


def test_a_file_that_a_killed_beginning_left_is_no_ledger_yet(path: Path):
    path.touch()
    assert not Ledger.exists(path)


def test_a_round_is_appended_once_and_in_order(where: str):
    written(where)
    with Ledger.open(where, noon) as ledger:
        for index, records in enumerate(FACTS):
            with pytest.raises(LedgerError, match=f"round {index} comes after round 1"):
                ledger.append(index, records)
        assert ledger.replay() == FACTS[0] + FACTS[1]


def test_a_round_without_events_is_refused(where: str):
    with (
        Ledger.create(where, noon) as ledger,
        pytest.raises(LedgerError, match="at least one event"),
    ):
        ledger.append(0, [])


def test_an_event_of_another_round_is_refused(where: str):
    with (
        Ledger.create(where, noon) as ledger,
        pytest.raises(LedgerError, match=r"of round 0 .* one of round 1"),
    ):
        ledger.append(0, FACTS[1])


@pytest.mark.parametrize(
    ("replayed", "difference"),
    [
        (FACTS[1][:1], r"event 2 \(risk_measured\) was recorded only"),
        ([*FACTS[1], Record(1, "more", {})], r"event 3 \(more\) was replayed only"),
        (
            [FACTS[1][0], Record(1, "risk_measured", {"cluster": 0, "risk": 0.626})],
            r"event 2 \(risk_measured\) differs in risk\.",
        ),
        (
            [Record(1, "cohort_sampled", {"clients": [], "new": None})],
            r"event 1 \(cohort_sampled\) differs in new\.",
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


def test_a_tuple_replays_as_the_list_that_json_made_of_it(where: str):
    fact = Record(0, "cohort_sampled", {"clients": ("a", "b")})
    written(where, [[fact]])
    Ledger.read(where).compare(0, [fact])


def test_enrolling_again_changes_nothing(where: str):
    with Ledger.create(where, noon) as ledger:
        ledger.enrol({"7f3a": "client-00001"})
        ledger.enrol(NAMES)
        ledger.enrol(NAMES)
        assert ledger.names() == NAMES
        assert ledger.head() == GENESIS


@pytest.mark.parametrize("handles", [{"7f3a": "other"}, {"eeee": "client-00001"}])
def test_a_handle_and_a_name_are_bound_once(where: str, handles: dict[str, str]):
    with Ledger.create(where, noon) as ledger:
        ledger.enrol(NAMES)
        with pytest.raises(LedgerError, match="binds a handle or a client twice") as no:
            ledger.enrol(handles)
        assert ledger.names() == NAMES
    assert not any(name in str(no.value) for name in ("other", *NAMES.values()))


def test_names_stand_beside_the_events_only(path: Path):
    with Ledger.create(path, noon) as ledger:
        ledger.enrol(NAMES)
        ledger.append(0, FACTS[0])
        shown = f"{ledger!r} {ledger.replay()!r}"
    assert "client-0" not in shown
    assert str(path) in shown
    with create_engine(f"sqlite:///{path}").begin() as erase:
        erase.execute(delete(clients).where(clients.c.name == "client-00001"))
        seal_tables(erase)
    Ledger.read(path).verify()


def test_a_second_ledger_is_not_begun_over_a_first(where: str):
    head = written(where)
    with pytest.raises(LedgerError, match="holds one already"):
        Ledger.create(where, noon)
    assert Ledger.read(where).head() == head


@pytest.mark.parametrize(
    "url",
    [
        "mysql://covey:secret@host/runs?password=secret",
        "postgresql+psycopg2://covey:secret@host/runs?run=a",
    ],
)
def test_another_database_is_refused_without_its_password(url: str):
    with pytest.raises(LedgerError, match="other databases") as no:
        Ledger.create(url, noon)
    assert "secret" not in str(no.value)


def test_a_url_that_is_none_is_refused_without_its_password():
    with pytest.raises(LedgerError, match="one that SQLAlchemy can read") as no:
        Ledger.create("postgresql://covey:secret@host:port/runs", noon)
    assert "secret" not in str(no.value)
    assert no.value.__cause__ is None


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
            with pytest.raises(LedgerError, match="not what was read before"):
                next(ledger.pieces(other))


def test_what_follows_is_verified_too(tmp_path: Path):
    where = tmp_path / "ledger.sqlite"
    written(where)
    with Ledger.read(where) as ledger:
        before = next(ledger.links())
        with sqlite3.connect(where) as file:
            file.execute("UPDATE events SET body = '{}' WHERE position = 3")
        with pytest.raises(LedgerError, match="broken at position 3"):
            next(ledger.pieces(before))


def test_a_head_that_is_no_text_is_no_head(tmp_path: Path):
    where = tmp_path / "ledger.sqlite"
    written(where)
    with Ledger.read(where) as ledger:
        with sqlite3.connect(where) as file:
            file.execute("UPDATE events SET hash = x'00' WHERE position = 3")
        with pytest.raises(LedgerError, match="broken"):
            ledger.head()
