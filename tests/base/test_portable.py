"""covey on systems that lack what Linux has, played on Linux."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = """
import os, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "getuid", "geteuid", "sched_getaffinity"):
    vars(os).pop(name, None)
from pathlib import Path

import pytest
import covey
from covey.cli.app import main
from covey.cli.commands import app, loaded
for name in app.list_commands(None):
    loaded(name)
sys.argv = ["covey", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_a_run_needs_nothing_that_only_linux_has(tmp_path: Path):
    settings = [
        "rounds=1",
        "population.clients=6",
        "population.audit_examples=60",
        "model.name=mlp",
        "train.local_epochs=1",
        "engine.name=parallel",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE, "run", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    assert len(list(tmp_path.glob("runs/*/report.html"))) == 1
