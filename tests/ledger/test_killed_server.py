"""PostgreSQL is killed under many writers: what it acknowledged is there, once."""

import json
import subprocess
import sys
from collections import Counter
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

from covey.ledger.store import Ledger
from ledger import writers

TORTURE = (pytest.mark.slow, pytest.mark.torture)
NUMBERS = count()


def own_rounds_kept(url: str, name: str, acknowledged: list[dict[str, Any]]) -> int:
    """Check a writer's own run, and return how many of its rounds were acknowledged."""
    ledger = Ledger.read(url + name)
    told = ledger.replay()
    rounds = len(told) // 2
    # the last one may be recorded though its answer was lost
    assert rounds in (len(acknowledged), len(acknowledged) + 1)
    assert told == [r for n in range(rounds) for r in writers.own_round(name, n)]
    hashes = [each.hash for each in ledger.links()]
    assert [hashes[2 * n + 1] for n in range(len(acknowledged))] == [
        each["head"] for each in acknowledged
    ]
    return len(acknowledged)


@pytest.mark.parametrize(
    ("number", "seconds", "kills"),
    [pytest.param(4, 5, 1, marks=pytest.mark.slow), pytest.param(8, 60, 2, marks=TORTURE)],
)
def test_what_a_killed_server_acknowledged_is_there_once(
    postgres, number: int, seconds: int, kills: int, tmp_path: Path
):
    if postgres.control is None:
        pytest.skip("a server that is not ours is not killed")
    url = postgres.run(f"under_fire_{next(NUMBERS)}_")
    deaths = cycle([postgres.kill, postgres.stop])
    command = [writers.__file__, url, str(number), str(seconds), str(tmp_path)]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        for _ in range(kills):
            with pytest.raises(subprocess.TimeoutExpired):  # else the writers failed
                process.wait(seconds / (kills + 1))
            next(deaths)()
            postgres.start()
        assert process.wait(seconds) == 0
    errors, written = Counter[str](), 0
    for log in tmp_path.iterdir():
        *lines, last = [json.loads(line) for line in log.read_text().splitlines()]
        errors.update(last["errors"])
        written += own_rounds_kept(url, log.name, lines)
    assert errors["LedgerUnavailable"] + errors["LedgerLocked"] >= number * kills
    print(f"{number} writers, {kills} kills: {written} kept, {dict(errors)}")  # noqa: T201
