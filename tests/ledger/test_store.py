import sqlite3
import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import LedgerError, LedgerMismatch
from covey.ledger import GENESIS, Ledger, Record

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


def written(path: Path, rounds: list[list[Record]] = FACTS) -> str:
    """Write a ledger of these rounds and return its head."""
    with Ledger.create(path, noon) as ledger:
        for records in rounds:
            ledger.append(records[0].round_index, records)
        return ledger.head()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


histories = st.lists(
    st.lists(
        st.tuples(
            st.text(max_size=8),
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
        [Record(index, kind, body) for kind, body in facts]
        for index, facts in enumerate(rounds)
    ]
)


@settings(max_examples=25, deadline=None)
@given(histories)
def test_replaying_gives_what_was_appended(rounds: list[list[Record]]):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        head = written(path, rounds)
        ledger = Ledger.read(path)
        assert ledger.replay() == [one for records in rounds for one in records]
        assert ledger.head() == head
        for index, records in enumerate(rounds):
            assert ledger.round(index) == records
            ledger.compare(index, records)


def test_a_new_ledger_holds_nothing(path: Path):
    with Ledger.create(path, noon) as ledger:
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
    assert stamps.execute("SELECT * FROM clock").fetchall() == [(0, "0"), (1, "1")]
    stamps.close()


def test_a_ledger_is_carried_on_where_it_ended(tmp_path: Path):
    written(tmp_path / "a.sqlite", FACTS[:1])
    with Ledger.open(f"sqlite:///{tmp_path}/a.sqlite", noon) as ledger:
        assert ledger.last_round() == 0
        head = ledger.append(1, FACTS[1])
        ledger.verify()
    assert head == written(tmp_path / "b.sqlite")


def test_a_round_is_appended_once_and_in_order(path: Path):
    written(path)
    with Ledger.open(path, noon) as ledger:
        for index, records in enumerate(FACTS):
            with pytest.raises(LedgerError, match=f"round {index} comes after round 1"):
                ledger.append(index, records)
        assert ledger.replay() == FACTS[0] + FACTS[1]


def test_a_round_without_events_is_refused(path: Path):
    with (
        Ledger.create(path, noon) as ledger,
        pytest.raises(LedgerError, match="at least one event"),
    ):
        ledger.append(0, [])


def test_an_event_of_another_round_is_refused(path: Path):
    with (
        Ledger.create(path, noon) as ledger,
        pytest.raises(LedgerError, match="round 0 came with events of round 1"),
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
    path: Path, replayed: list[Record], difference: str
):
    written(path)
    with pytest.raises(LedgerMismatch, match=difference):
        Ledger.read(path).compare(1, replayed)


def test_a_tuple_replays_as_the_list_that_json_made_of_it(path: Path):
    fact = Record(0, "cohort_sampled", {"clients": ("a", "b")})
    written(path, [[fact]])
    Ledger.read(path).compare(0, [fact])


def test_enrolling_again_changes_nothing(path: Path):
    with Ledger.create(path, noon) as ledger:
        ledger.enrol({"7f3a": "client-00001"})
        ledger.enrol(NAMES)
        ledger.enrol(NAMES)
        assert ledger.names() == NAMES
        assert ledger.head() == GENESIS


@pytest.mark.parametrize("handles", [{"7f3a": "other"}, {"eeee": "client-00001"}])
def test_a_handle_and_a_name_are_bound_once(path: Path, handles: dict[str, str]):
    with Ledger.create(path, noon) as ledger:
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
    erase = sqlite3.connect(path)
    erase.execute("DELETE FROM clients WHERE name = 'client-00001'")
    erase.commit()
    erase.close()
    Ledger.read(path).verify()


def test_a_second_ledger_is_not_begun_over_a_first(path: Path):
    head = written(path)
    with pytest.raises(LedgerError, match="holds one already"):
        Ledger.create(path, noon)
    assert Ledger.read(path).head() == head


def test_another_database_is_refused_without_its_password():
    with pytest.raises(LedgerError, match="other databases") as no:
        Ledger.create("postgresql://covey:secret@host/runs", noon)
    assert "secret" not in str(no.value)
