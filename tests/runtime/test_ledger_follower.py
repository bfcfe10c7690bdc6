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
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.report.summary import summary
from covey.runtime.ledger_record import LedgerFollower, RecordReader, glance

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


def looked(follower: LedgerFollower, place: Path) -> None:
    with Ledger.read(place) as ledger:
        while follower.read_more(ledger):
            pass


@given(steps=STEPS, most_bytes=st.sampled_from([1, 300, 10_000]))
def test_looking_often_and_in_small_pieces_tells_the_same_story(
    steps: list[str | int], most_bytes: int
):
    follower = LedgerFollower(most_bytes)
    with TemporaryDirectory() as folder:
        place, t = Path(folder) / "ledger.sqlite", 0
        with Ledger.create(place, clock) as ledger:
            for seed, step in enumerate(steps):
                if step == "look":
                    looked(follower, place)
                elif step == "round":
                    ledger.append(t, a_round(t, seed))
                    t += 1
                elif isinstance(step, int) and step < t:
                    left = ClientLeft(HANDLES[seed % 4], "retrain", None)
                    back = RunRolledBack(step, t, "anew")
                    ledger.append_between(records(None, left, back))
                    t = step
            looked(follower, place)
            whole = RecordReader().read(ledger)
    assert follower.history == whole.history
    assert follower.head == whole.head
    assert follower.position == len(whole.hashes)
    assert summary(follower.history) == summary(whole.history)


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
    follower = LedgerFollower()
    looked(follower, played)
    with Ledger.read(played) as ledger:
        seen = glance(ledger)
    assert [r.accuracy for r in seen.rounds] == [r.accuracy for r in follower.history.rounds]
    assert [r.clients for r in seen.rounds] == [r.clients for r in follower.history.rounds]
    assert seen.measured == follower.history.measured
    assert seen.started == follower.history.started
    assert seen.assignment == {}


def changed(place: Path, position: int) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        (body,) = connection.execute("SELECT body FROM events WHERE position = ?", (position,))
        text = zlib.decompress(body[0]).replace(b"0", b"1")
        connection.execute(
            "UPDATE events SET body = ? WHERE position = ?", (zlib.compress(text), position)
        )


def test_a_record_that_was_changed_is_noticed_where_it_stands(played: Path):
    changed(played, 9)
    with pytest.raises(LedgerError, match="position 9"):
        looked(LedgerFollower(1), played)


def test_a_ledger_that_was_put_in_the_place_of_another_is_noticed(played: Path, tmp_path: Path):
    follower = LedgerFollower()
    looked(follower, played)
    played.unlink()
    with Ledger.create(played, clock) as ledger:
        for t in range(9):
            ledger.append(t, a_round(t, t + 1))
    with pytest.raises(LedgerError, match="not what was read before"):
        looked(follower, played)


def test_a_ledger_that_got_shorter_is_noticed(played: Path):
    follower = LedgerFollower()
    looked(follower, played)
    with closing(sqlite3.connect(played)) as connection, connection:
        connection.execute("DELETE FROM events WHERE position > 6")
    with pytest.raises(LedgerError, match="not what was read before"):
        looked(follower, played)


def test_a_table_that_says_something_else_than_the_events_is_noticed(played: Path):
    with closing(sqlite3.connect(played)) as connection, connection:
        connection.execute("DELETE FROM participation WHERE round = 1 AND client = 'h2'")
    with pytest.raises(LedgerError, match="in round 1 it holds something else"):
        looked(LedgerFollower(1), played)


def test_reading_waits_for_no_writer_and_holds_none_up(played: Path):
    follower = LedgerFollower()
    with Ledger.open(played, clock) as ledger:
        looked(follower, played)
        ledger.append(3, a_round(3, 3))
        looked(follower, played)
    assert len(follower.history.rounds) == 4
