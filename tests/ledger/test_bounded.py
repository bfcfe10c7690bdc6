"""What a round costs does not grow with how many were played before it."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, event

from covey.ledger import rows
from covey.ledger.chain import REWIND, Record
from covey.ledger.store import Ledger
from ledger.conftest import noon

TORTURE = (pytest.mark.slow, pytest.mark.torture)


def facts(t: int | None) -> list[Record]:
    return [Record(t, "cohort_sampled", {"clients": 3}), Record(t, "moved", {"n": 1})]


def rewind(first: int) -> list[Record]:
    return [Record(None, REWIND, {"round_index": first})]


def long_ledger(path: Path, rounds: int) -> Path:
    """Lay down so many rounds at once: one by one would take minutes."""
    Ledger.create(path, noon).close()
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
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
                lambda: ledger.compare(rounds, facts(rounds)),
                ledger.last_round,
                ledger.files.newest_state,
                lambda: ledger.append_between(rewind(rounds // 2)),
                ledger.last_round,
                lambda: ledger.append(rounds // 2, facts(rounds // 2)),
                ledger.last_round,
            ],
        )


@pytest.mark.parametrize("rounds", [300, pytest.param(100_000, marks=TORTURE)])
def test_a_round_costs_as_much_after_many_rounds_as_after_few(rounds, tmp_path):
    few, many = costs(tmp_path / "few", 30), costs(tmp_path / "many", rounds)
    assert max(few) < 1_000
    # a deeper tree takes a few instructions more; a scan would take thousands
    assert all(b <= a + 60 for a, b in zip(few, many, strict=True)), (few, many)


# after a thousand rounds


APPENDS = """
import json, statistics, sys, time
from pathlib import Path
from covey.ledger.store import Ledger
from covey.ledger.chain import Record

def peak():
    "A process of its own: `getrusage` would count what its parent had before."
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])


path, early, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lasted, costs = [], {}
with Ledger.create(path, lambda: "2030-01-01T12:00:00Z") as ledger:
    for t in range(rounds):
        records = [Record(t, "moved", {"client": n, "to": t}) for n in range(2)]
        began = time.process_time()
        ledger.append(t, records)
        lasted.append(time.process_time() - began)
        if t + 1 in (early, rounds):
            costs[t + 1] = {
                "cpu milliseconds": 1_000 * statistics.median(lasted[-500:]),
                "kibibytes": peak(),
            }
            del lasted[:]
        del lasted[:-500]
print(json.dumps([costs[early], costs[rounds]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others tell no peak of memory")
@pytest.mark.parametrize(
    "rounds", [pytest.param(2_000, marks=pytest.mark.slow), pytest.param(100_000, marks=TORTURE)]
)
def test_memory_and_time_stay_what_they_were_after_a_thousand_rounds(rounds: int, tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", APPENDS, str(tmp_path / "ledger"), "1000", str(rounds)],
        capture_output=True,
        text=True,
        check=True,
    )
    early, late = json.loads(ran.stdout)
    print(f"after 1,000 rounds {early}, after {rounds:,} {late}")  # noqa: T201
    assert late["kibibytes"] <= early["kibibytes"] + 8 * 1024
    assert late["cpu milliseconds"] <= 2 * early["cpu milliseconds"] + 1
