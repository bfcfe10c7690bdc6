"""A history that is folded as its ledger grows is the one that is folded at its end."""

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import LedgerError
from covey.base.events import (
    ClientLeft,
    ClientsAssigned,
    CohortSampled,
    Event,
    RiskMeasured,
    RoundMeasured,
    RunRolledBack,
    RunStarted,
    SumPerturbed,
    kind_and_body,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Handle
from covey.ledger import rows
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.report.summary import summary
from covey.runtime.ledger_record import EventReader, LedgerReader, LedgerRecord, glance

HANDLES: tuple[Handle, ...] = ("h0", "h1", "h2", "h3")
STEPS = st.lists(st.one_of(st.just("round"), st.just("look"), st.integers(0, 5)), max_size=14)
"""A round, a look at the ledger, or a rewind to before some round."""


def clock() -> str:
    return "2030-01-01T12:00:00Z"


def records(t: int | None, *events: Event) -> list[Record]:
    return [Record(t, *kind_and_body(each)) for each in events]


def a_round(t: int, seed: int) -> list[Record]:
    chosen = {h: (seed + i * t) % 2 for i, h in enumerate(HANDLES)}
    taus = dict.fromkeys(HANDLES, 0.6)
    begins = [
        RunStarted("0", "ifca", "c", "d", 2, 9, (), dict.fromkeys(HANDLES), taus, 3, ()),
        SumPerturbed(0, 1.0, 2.0, 1.0),
    ]
    sizes = (sum(j == 0 for j in chosen.values()), sum(chosen.values()))
    return records(
        t,
        *(begins if t == 0 else []),
        RiskMeasured(
            seed % 2, RiskEstimate(Figure(0.65, 0.01), 0.6, 9, 9, source="oracle", round_index=t)
        ),
        CohortSampled(HANDLES),
        ClientsAssigned(chosen, "clients"),
        RoundMeasured(0.5 + 0.01 * seed, {}, sizes),
    )


def looked(reader: LedgerReader, place: Path) -> LedgerRecord:
    with Ledger.read(place) as ledger:
        return reader.read(ledger)


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_BYTES", 1)


@given(steps=STEPS, most_bytes=st.sampled_from([1, 300, 10_000]))
def test_looking_often_and_in_small_pieces_tells_the_same_story(
    steps: list[str | int], most_bytes: int
):
    reader = LedgerReader(places=True)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "MOST_BYTES", most_bytes)
        place, t = Path(folder) / "ledger.sqlite", 0
        with Ledger.create(place, clock) as ledger:
            for seed, step in enumerate(steps):
                if step == "look":
                    assert looked(reader, place).history.all_events is not None
                elif step == "round":
                    ledger.append(t, a_round(t, seed))
                    t += 1
                elif isinstance(step, int) and step < t:
                    left = ClientLeft(HANDLES[seed % 4], "retrain", None)
                    back = RunRolledBack(step, t, "anew")
                    ledger.append_between(records(None, left, back))
                    t = step
            grown, whole = looked(reader, place), LedgerReader().read(ledger)
            counting = [record.position for record in map(rows.Link.record, ledger.look())]
    assert grown.history == whole.history
    assert (grown.head, grown.facts) == (whole.head, whole.facts)
    assert reader.position == len(whole.hashes)
    assert [at for at, counts in enumerate(grown.counting, 1) if counts] == counting
    assert summary(grown.history) == summary(whole.history)


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """Three rounds, the last of which was played twice."""
    place = tmp_path / "ledger.sqlite"
    with Ledger.create(place, clock) as ledger:
        for t in range(3):
            ledger.append(t, a_round(t, t))
        ledger.append_between(records(None, RunRolledBack(2, 3, "anew")))
        ledger.append(2, a_round(2, 7))
    return place


def test_a_glance_tells_all_but_who_is_where(played: Path):
    history = looked(LedgerReader(), played).history
    with Ledger.read(played) as ledger:
        seen = glance(ledger)
    assert [r.accuracy for r in seen.rounds] == [r.accuracy for r in history.rounds]
    assert [r.clients for r in seen.rounds] == [r.clients for r in history.rounds]
    assert seen.measured == history.measured
    assert seen.started == history.started
    assert seen.assignment == {}


def changed(place: Path, position: int) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        (body,) = connection.execute("SELECT body FROM events WHERE position = ?", (position,))
        text = zlib.decompress(body[0]).replace(b"0", b"1")
        connection.execute(
            "UPDATE events SET body = ? WHERE position = ?", (zlib.compress(text), position)
        )


@pytest.mark.usefixtures("in_small_pieces")
def test_a_record_that_was_changed_is_noticed_where_it_stands(played: Path):
    changed(played, 9)
    reader = LedgerReader()
    for _ in range(2):
        with pytest.raises(LedgerError, match="position 9"):
            looked(reader, played)


@pytest.mark.parametrize(
    ("sealed", "problem"),
    [
        ((1, CohortSampled(HANDLES)), "round 1, and round 2 came before"),
        ((2, CohortSampled(HANDLES)), "another CohortSampled"),
        ((3, ClientsAssigned({"h0": 0}, "clients")), "no cohort was drawn"),
        ((3, CohortSampled(("strange",))), "never joined: 'strange'"),
        ((None, RunRolledBack(-1, 3, "anew")), "greater than or equal to 0"),
    ],
)
def test_an_event_out_of_its_order_is_refused_however_often_it_is_read(
    played: Path, sealed: tuple[int | None, Event], problem: str
):
    with Ledger.read(played) as ledger:
        reader, before = EventReader(), ledger.replay()
        for record in before:
            reader.read(record)
    (strange,) = records(*sealed)
    for _ in range(2):
        with pytest.raises(LedgerError, match=problem):
            reader.read(strange)


def test_a_ledger_that_was_put_in_the_place_of_another_is_noticed(played: Path, tmp_path: Path):
    reader = LedgerReader()
    looked(reader, played)
    played.unlink()
    with Ledger.create(played, clock) as ledger:
        for t in range(9):
            ledger.append(t, a_round(t, t + 1))
    with pytest.raises(LedgerError, match="not what was read before"):
        looked(reader, played)


def test_a_ledger_that_got_shorter_is_noticed(played: Path):
    reader = LedgerReader()
    looked(reader, played)
    with closing(sqlite3.connect(played)) as connection, connection:
        connection.execute("DELETE FROM events WHERE position > 6")
    with pytest.raises(LedgerError, match="not what was read before"):
        looked(reader, played)


@pytest.mark.usefixtures("in_small_pieces")
def test_a_table_that_says_something_else_than_the_events_is_noticed(played: Path):
    with closing(sqlite3.connect(played)) as connection, connection:
        connection.execute("DELETE FROM participation WHERE round = 1 AND client = 'h2'")
    reader = LedgerReader(places=True)
    for _ in range(2):
        with pytest.raises(LedgerError, match="in round 1 it holds something else"):
            looked(reader, played)
    assert looked(LedgerReader(), played).history.rounds  # whose events are whole


def test_reading_waits_for_no_writer_and_holds_none_up(played: Path):
    reader = LedgerReader()
    with Ledger.open(played, clock) as ledger:
        before = looked(reader, played)
        ledger.append(3, a_round(3, 3))
        after = looked(reader, played)
    assert (len(before.history.rounds), len(after.history.rounds)) == (3, 4)


def test_the_newest_events_are_listed_those_alike_as_one(played: Path):
    latest = looked(LedgerReader(), played).latest(5)
    assert [(each.position, each.kind, each.counts, each.number) for each in latest] == [
        (19, "RoundMeasured", True, 1),
        (18, "ClientsAssigned", True, 1),
        (17, "CohortSampled", True, 1),
        (16, "RiskMeasured", True, 1),
        (15, "RunRolledBack", True, 1),
    ]
    assert [each.counts for each in looked(LedgerReader(), played).latest(9)] == [True] * 5 + [
        False
    ] * 4
