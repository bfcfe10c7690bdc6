"""What a message costs a node's machine: processor time of all processes that it has."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from covey import load
from flower.deployment import Deployment, invited

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux"),
]

CONFIG = """
rounds = 5
[data]
name = "npz"
[population]
clients = 2
[model]
name = "mlp"
[method]
name = "fedavg"
[risk]
name = "none"
"""

ROUNDS = 5
NAMES = [f"client-{index:05}" for index in range(2)]


def processor_seconds(deployment: Deployment) -> float:
    """Of the nodes' processes, with those that they started and that have ended."""
    ticks = 0
    for number in (each for name in NAMES for each in deployment.running(name)):
        with suppress(OSError):  # it has ended meanwhile, and counts with its parent
            _, told = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)
            ticks += sum(map(int, told.split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def test_a_message_to_a_node_loads_nothing_anew(tmp_path, monkeypatch, record_property, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder, rng = invited(tmp_path, CONFIG, NAMES), np.random.default_rng(0)
    for seed, name in enumerate(NAMES):
        node = folder / "nodes" / name
        images = rng.integers(0, 256, (250, 8, 8), dtype=np.uint8)
        np.savez(node / "mine.npz", x=images, y=np.arange(250) % 10)
        told = {"name": name, "seed": seed, "data": "mine.npz"}
        (node / "node.toml").write_text(tomli_w.dumps(told))
    with Deployment(folder) as deployment:
        before = processor_seconds(deployment)
        said = deployment.submit().wait(600.0)
        spent = processor_seconds(deployment) - before
        answered = [deployment.log(n).count("Received successfully") for n in NAMES]
    assert load(folder / "runs" / "federation").history.finished is not None, said
    assert all(count >= 1 + ROUNDS for count in answered)  # who it is, and each round
    each = spent / sum(answered)
    record_property("processor seconds per message", each)
    with capsys.disabled():
        sys.stdout.write(f"\n{each:.2f} s of processor time per message\n")
    assert each < 3  # about 4.5 where every message loads everything anew
