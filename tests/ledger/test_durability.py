"""Durability by violence: lives that end at every SQL statement, and a server that is killed."""

import json
import subprocess
import sys
from collections import Counter
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

from covey import LedgerError, LedgerLocked
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from ledger import writers
from ledger.conftest import noon


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.slow)])
def remains(request, life, deaths, tmp_path_factory) -> list[Path]:
    """What deaths at every fourth statement, or at each, left behind, in their order."""
    places = f"{tmp_path_factory.mktemp('remains')}/{{}}/ledger.sqlite"
    return [Path(path) for path in deaths(life.live, places, request.param)]


def replayed_from(path: Path) -> list[Record]:
    try:
        return Ledger.read(path).replay()
    except LedgerError:
        return []  # it died before there was a ledger


@pytest.mark.slow
def test_killed_at_any_statement_all_of_a_round_is_there_or_none(remains, life, tmp_path):
    undisturbed = life.live(tmp_path / "ledger.sqlite")
    interrupted = [path for path in remains if Path(f"{path}-journal").exists()]
    replays = [replayed_from(path) for path in remains]
    assert int(remains[-1].parent.name) > 40  # statements in a life
    assert interrupted  # some died with the file half changed
    assert all(replay in life.replays for replay in replays)  # a reader puts back what was begun
    assert [len(replay) for replay in replays] == sorted(len(replay) for replay in replays)
    assert replays[-1] == life.replays[-1]
    assert {life.live(path) for path in remains} == {undisturbed}
    assert all(Ledger.read(path).replay() == life.replays[-1] for path in remains)
    assert all(Ledger.read(path).names() == life.names for path in remains)


@pytest.mark.slow
def test_of_two_writers_the_second_is_locked_out_and_reading_goes_on(where: str, life):
    with Ledger.create(where, noon) as first:
        first.append(0, life.rounds[0])
        for door in (Ledger.open, Ledger.create):
            with pytest.raises(LedgerLocked, match="found another process"):
                door(where, noon)
        reader = Ledger.read(where)
        assert reader.last_round() == 0
        first.append(1, life.rounds[1])
        assert reader.last_round() == 1
    with Ledger.open(where, noon) as second:
        second.append(2, life.rounds[2])
    assert reader.replay() == life.replays[-1]


def test_another_process_is_locked_out_until_the_writer_dies(life, tmp_path: Path):
    path = tmp_path / "ledger.sqlite"
    script = (
        "import sys; from covey.ledger.store import Ledger\n"
        "ledger = Ledger.create(sys.argv[1], lambda: '')\n"
        "print('open', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(LedgerLocked):
            Ledger.open(path, noon)
        writer.kill()
    with Ledger.open(path, noon) as ledger:
        ledger.append(0, life.rounds[0])


TORTURE = (pytest.mark.slow, pytest.mark.torture)
NUMBERS = count()


def own_rounds_kept(url: str, name: str, acknowledged: list[dict[str, Any]]) -> int:
    """Check a writer's own run, and return how many of its rounds were acknowledged."""
    ledger = Ledger.read(url + name)
    replayed = ledger.replay()
    rounds = len(replayed) // 2
    # the last one may be recorded though its answer was lost
    assert rounds in (len(acknowledged), len(acknowledged) + 1)
    assert replayed == [r for n in range(rounds) for r in writers.own_round(name, n)]
    hashes = [link.hash for link in ledger.links()]
    assert [hashes[2 * n + 1] for n in range(len(acknowledged))] == [
        line["head"] for line in acknowledged
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
