"""`covey deploy try` goes from nothing to a verified proof, and leaves no process behind."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import covey
from flower.deployment import until
from marked_processes import MARK, end_marked, marked_processes

pytestmark = pytest.mark.slow

LONG = 600.0  # seconds that a trial may take on a busy machine


@pytest.fixture
def trying(tmp_path, monkeypatch):
    """Start a trial whose processes have a mark."""
    mark = secrets.token_hex(8)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    words = [sys.executable, "-m", "covey", "deploy", "try", "--out", "tried"]

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            words,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, MARK: mark},
        )
        return process, tmp_path / "tried"

    yield start, mark
    end_marked(mark)


def test_three_nodes_play_and_one_leaves_with_a_proof_that_holds(trying):
    start, mark = trying
    process, folder = start()
    said, output = process.communicate(timeout=LONG)
    assert process.returncode == 0, output
    assert "left: carol" in said
    assert "proof holds: yes" in said
    assert "unknown" not in said
    assert len(output.splitlines()) == 6
    assert marked_processes(mark) == []
    run = covey.load(folder / "run")
    assert sorted(run.names) == ["alice", "bob"]
    assert [r.participants for r in run.history.rounds] == [2, 2, 2]
    (proof,) = (folder / "run" / "proofs").glob("*.json")
    assert covey.verify(proof, run=folder / "run").valid
    assert not Path(os.environ["XDG_CONFIG_HOME"]).exists()  # nothing of the user's is touched


def test_an_interrupt_ends_all_that_was_started(trying):
    start, mark = trying
    process, folder = start()
    log = folder / "logs" / "bob.log"
    until(lambda: log.exists() and "SuperNode" in log.read_text(), "a node starts", LONG)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG)
    assert process.returncode != 0
    assert marked_processes(mark) == []


def test_a_node_that_fails_ends_the_trial_with_a_sentence(trying):
    start, mark = trying
    process, folder = start()
    script = folder / "fed" / "nodes" / "bob" / "start.sh"
    until(script.exists, "the folder is written", LONG)
    script.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 3\n")
    _, output = process.communicate(timeout=LONG)
    assert process.returncode == 2
    assert "no such luck" in " ".join(output.split())
    assert marked_processes(mark) == []
