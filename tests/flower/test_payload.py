"""A federation whose model takes 100 MB: what a round of it costs in time and memory."""

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from covey import load
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from flower.deployment import Deployment, invited, until

pytestmark = [pytest.mark.slow, pytest.mark.results]

MODEL = """
from torch import nn


def wide():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 5_000), nn.Linear(5_000, 5_000), nn.Linear(5_000, 10)
    )
"""

CONFIG = """
rounds = 2
[population]
clients = 2
[model]
name = "large_model:wide"
[method]
name = "fedavg"
[risk]
name = "none"
"""

PAYLOAD = 4 * (65 * 5_000 + 5_001 * 5_000 + 5_001 * 10)  # bytes
PROGRAMS = {
    "flower-superlink": "SuperLink",
    "flwr-serverapp": "ServerApp",
    "flower-supernode": "SuperNode",
    "flwr-clientapp": "client app",
    "covey_flower.fork_server": "client app",
}


def peaks(deployment: Deployment) -> Mapping[str, int]:
    """The most memory, in bytes, that a process of each kind has held so far."""
    sizes: dict[str, int] = {}
    for number in deployment.running():
        with suppress(OSError):  # it has ended meanwhile
            process = Path(f"/proc/{number}")
            _, *words = (process / "cmdline").read_text().split("\0")
            script = words[2] if words[:2] == ["-P", "-m"] else "".join(words[:1])
            program = PROGRAMS.get(Path(script).name)
            held = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
            if program and held:
                sizes[program] = max(1024 * int(held[1]), sizes.get(program, 0))
    return sizes


def test_a_model_of_100_mb_travels(tmp_path, monkeypatch, capsys):
    (tmp_path / "large_model.py").write_text(MODEL)
    known = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(known))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    names = [f"client-{index:05}" for index in range(2)]
    held: dict[str, int] = {}
    with Deployment(invited(tmp_path, CONFIG, names)) as deployment:
        run = deployment.submit()

        def ended() -> bool:
            for program, most in peaks(deployment).items():
                held[program] = max(most, held.get(program, 0))
            return run.process.poll() is not None

        until(ended, "the run ends", 600.0)
        said = run.wait()
    result = load(deployment.folder / "runs" / "federation")
    assert result.history.finished is not None, said
    assert [r.participants for r in result.history.rounds] == [2, 2]
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        second_round, _ = ledger.seconds_per_round()
    assert set(held) == set(PROGRAMS.values())
    assert held["ServerApp"] < 20 * PAYLOAD
    lines = [f"{PAYLOAD / 1e6:.0f} MB, 2 nodes: a round takes {second_round:.0f} s"]
    lines += [f"{program}: {most / 1e6:.0f} MB" for program, most in sorted(held.items())]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n  ".join(lines) + "\n")
