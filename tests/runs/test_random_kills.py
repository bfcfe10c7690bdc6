"""A process that is killed whenever it happens to be, again and again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    told = said.read_text()[-2_000:] if said.exists() else ""
    assert ran.returncode == 0, ran.stderr + told
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["wrong"] == [], told
    assert found["kills"] == kills
    print(f"{found['kills']} kills of {found['runs']} runs")  # noqa: T201
