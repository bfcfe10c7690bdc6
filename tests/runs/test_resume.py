"""Whenever a run is killed, resuming it ends as if nothing had happened."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from covey import Config, LedgerMismatch, RunError, resume, run
from covey.base.events import PricesSet
from covey.runs import loop

PROGRAM = """
import tomllib
from covey import Config, run

settings, out = words
run(config=Config.of(tomllib.loads(settings)), out=out)
"""


POOLED = {"name": "pooled-ifca-mir"}
THRESHOLD = {"selection": "threshold"}


@pytest.mark.parametrize(
    ("where", "calls", "source", "method"),
    [
        ("after append", 2, "federated", {}),  # recorded, and not in a checkpoint
        *(
            pytest.param(*settings, marks=pytest.mark.slow)
            for settings in (
                ("before append", 0, "federated", POOLED),  # nothing recorded yet
                ("after save", 2, "shadow", POOLED),
                ("after append", 3, "client", THRESHOLD),  # they know what they found
                ("after append", 4, "federated", POOLED),  # after its very last fact
            )
        ),
    ],
)
def test_resuming_after_a_kill_ends_in_the_same_bits(
    settings, whole, killed, tmp_path, where, calls, source, method
):
    risk = {"name": source, **({"shadows": 1} if source == "shadow" else {})}
    config = settings(risk=risk, method=method)
    folder = tmp_path / "killed"
    killed(PROGRAM, where, calls, config.toml(), folder)

    resumed, expected = resume(folder), whole(config)

    assert resumed.ledger_head == expected.ledger_head
    assert resumed.summary.model_hash == expected.summary.model_hash
    assert len(resumed.history.rounds) == config.rounds


@pytest.mark.slow
def test_what_choices_left_behind_is_in_the_checkpoint(play, cut):
    """Prices decide the rounds to come."""
    whole = play(
        rounds=8,
        method={"selection": {"name": "priced", "target_share": 0.4}, "initialisation": "groups"},
        population={"clients": 10, "thresholds": [0.5, 0.6]},
        train={"participation": 0.8},
    )
    prices = [event.prices for event in whole.history.all_events if isinstance(event, PricesSet)]
    assert any(price > 0 for price in prices[3])
    cut(whole.folder, 6)
    assert resume(whole.folder).ledger_head == whole.ledger_head


def test_changed_data_do_not_pass_for_the_same_run(tmp_path):
    def clients(seed):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(20) % 2
        return [(torch.randn(20, 3, generator=generator), labels) for _ in range(3)]

    def model():
        return torch.nn.Linear(3, 2)

    config = Config.of({"rounds": 1})
    run(model=model, clients=clients(0), config=config, out=tmp_path / "own")
    with pytest.raises(RunError, match="clients' data must be what"):
        resume(tmp_path / "own", model, clients(1))
    with pytest.raises(RunError, match="must come from a program"):
        resume(tmp_path / "own")


def test_a_round_that_replays_differently_is_refused(play, monkeypatch):
    finished = play()
    with closing(sqlite3.connect(finished.folder / "ledger.sqlite")) as database, database:
        database.execute("DELETE FROM events WHERE round = 4")
    database.close()
    for checkpoint in (finished.folder / "checkpoints").iterdir():
        checkpoint.unlink()
    monkeypatch.setattr(loop, "TESTS_PER_ROUND", 3)  # another way to measure
    with pytest.raises(LedgerMismatch, match="Round 0 must replay"):
        resume(finished.folder)


TORTURE = (pytest.mark.slow, pytest.mark.torture)

LIVES = """
import json, os, random, signal, sys, time
from pathlib import Path

import torch

import covey

torch.set_num_threads(1)
place, kills = Path(sys.argv[1]), int(sys.argv[2])
settings = {
    "rounds": 5,
    "population.clients": 8,
    "population.examples_per_client": 40,
    "population.audit_examples": 40,
    "model.name": "mlp",
    "risk.every": 2,
    "method.name": "pooled-ifca-mir",
    "engine.name": "reference",
}


def live(folder):
    "Play the run, or carry it on; then let a client leave."
    if (folder / "config.toml").exists():  # with it, there is a run
        run = covey.resume(folder)
    else:
        run = covey.run(config=settings, out=folder)
    if not (folder / "proofs").exists():
        run.forget("client-00003", basis="erasure", answer="retrain")


def end(folder):
    run = covey.load(folder)
    return [run.summary.model_hash, run.names == whole_names, len(run.history.rounds)]


began = time.monotonic()
live(place / "whole")
lasts = time.monotonic() - began
whole = covey.load(place / "whole")
whole_names = whole.names
expected = end(place / "whole")
rng, killed, ended, wrong = random.Random(1), 0, 0, []
while killed < kills:
    folder, here = place / f"run-{ended}", 0
    while True:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            live(folder)
            os._exit(0)
        until = time.monotonic() + rng.uniform(0.02, lasts / 3)
        done = os.waitpid(child, os.WNOHANG)
        while done == (0, 0) and time.monotonic() < until:
            time.sleep(0.005)
            done = os.waitpid(child, os.WNOHANG)
        if done == (0, 0) and killed == kills:
            done = os.waitpid(child, 0)  # enough kills: the last run ends by itself
        if done == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
            continue
        if done[1]:
            wrong.append([str(folder), "failed", done[1]])
        break
    ended += 1
    if not wrong and end(folder) != expected:
        wrong.append([str(folder), end(folder), expected])
    if wrong:
        break
print(json.dumps({"kills": killed, "runs": ended, "wrong": wrong}))
"""


@pytest.mark.parametrize(
    "kills", [pytest.param(5, marks=pytest.mark.slow), pytest.param(200, marks=TORTURE)]
)
def test_whenever_it_is_killed_it_ends_in_the_same_bits(tmp_path: Path, kills: int):
    ran = subprocess.run(
        [sys.executable, "-c", LIVES, str(tmp_path), str(kills)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = tmp_path / "said"
    output = said.read_text()[-2_000:] if said.exists() else ""
    assert ran.returncode == 0, ran.stderr + output
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["wrong"] == [], output
    assert result["kills"] == kills
    print(f"{result['kills']} kills of {result['runs']} runs")  # noqa: T201
