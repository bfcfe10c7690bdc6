"""What a round costs does not grow with how many were played before it."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, event

from covey.ledger import rows, tables
from covey.ledger.chain import REWIND, Record
from covey.ledger.store import Ledger

TORTURE = (pytest.mark.slow, pytest.mark.torture)


def noon() -> str:
    return "2030-01-01T12:00:00Z"


def facts(t: int | None) -> list[Record]:
    return [Record(t, "cohort_sampled", {"clients": 3}), Record(t, "moved", {"n": 1})]


def rewind(first: int) -> list[Record]:
    return [Record(None, REWIND, {"round_index": first})]


def long_ledger(path: Path, rounds: int) -> Path:
    """Lay down so many rounds at once: one by one would take minutes."""
    Ledger.create(path, noon).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        for t in range(rounds):
            rows.add(connection, t, facts(t), noon())
    engine.dispose()
    return path


def steps(ledger: Ledger, deeds: Sequence[Callable[[], object]]) -> list[int]:
    """Count the instructions that SQLite carries out for each deed."""
    taken = 0

    def tick() -> int:
        nonlocal taken
        taken += 1
        return 0

    @event.listens_for(ledger._database.engine, "connect")
    def watch(connection: sqlite3.Connection, _: object) -> None:
        connection.set_progress_handler(tick, 1)

    counts: list[int] = []
    for deed in deeds:
        before = taken
        deed()
        counts.append(taken - before)
    return counts


def costs(path: Path, rounds: int) -> list[int]:
    ledger = Ledger.open(long_ledger(path, rounds), noon)
    with ledger:
        return steps(
            ledger,
            [
                lambda: ledger.append(rounds, facts(rounds)),
                lambda: ledger.files.note_state(rounds, "0" * 64),
                lambda: ledger.head_of(rounds),
                lambda: ledger.compare(rounds, facts(rounds)),
                ledger.last_round,
                ledger.furthest_round,
                ledger.files.newest_state,
                lambda: ledger.append_between(rewind(rounds // 2)),
                ledger.last_round,
                lambda: ledger.append(rounds // 2, facts(rounds // 2)),
                ledger.last_round,
            ],
        )


@pytest.mark.parametrize("rounds", [3_000, pytest.param(100_000, marks=TORTURE)])
def test_a_round_costs_as_much_after_many_rounds_as_after_few(rounds, tmp_path):
    few, many = costs(tmp_path / "few", 30), costs(tmp_path / "many", rounds)
    assert max(few) < 1_000
    # a deeper tree takes a few instructions more; a scan would take thousands
    assert all(b <= a + 60 for a, b in zip(few, many, strict=True)), (few, many)


@given(st.lists(st.integers(0, 6), max_size=12))
def test_the_last_round_is_that_of_the_current_story(words: list[int]):
    """0 to 3: so many rounds are played; 4 to 6: so many are taken back."""
    engine = create_engine("sqlite://")
    last = -1
    with engine.begin() as connection:
        tables.lay_out(connection, "memory")
        for word in words:
            if word < 4:
                for _ in range(word):
                    rows.add(connection, last + 1, facts(last + 1), noon())
                    last += 1
            else:
                rows.add(connection, None, rewind(max(0, last - (word - 4))), noon())
                last = max(0, last - (word - 4)) - 1
            assert rows.last_round(connection) == (None if last < 0 else last)
    engine.dispose()
