"""covey on systems that lack what Linux has, played on Linux."""

import os
import subprocess
import sys
from pathlib import Path

from covey import portable
from covey.atomic_io import flush_folder, replace_whole

ELSEWHERE = """
import os, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "getuid", "geteuid", "sched_getaffinity"):
    vars(os).pop(name, None)
from pathlib import Path
import covey
from covey.cli import main
from covey.cli.commands import COMMANDS, installed, loaded
for name in (*COMMANDS, *installed()):
    loaded(name)
sys.argv = ["covey", *sys.argv[1:]]
main()
"""


def test_a_run_needs_nothing_that_only_linux_has(tmp_path: Path):
    settings = [
        "rounds=1",
        "population.clients=6",
        "population.audit_examples=60",
        "model.name=mlp",
        "train.local_epochs=1",
        "engine.name=parallel",
    ]
    words = [word for each in settings for word in ("--set", each)]
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


def test_cores_are_counted_on_every_system(monkeypatch):
    assert portable.num_cores() >= 1
    monkeypatch.setattr(sys, "version_info", (3, 11))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert portable.num_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert portable.num_cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert portable.num_cores() == 1
    monkeypatch.setattr(sys, "version_info", (3, 13))
    monkeypatch.setattr(os, "process_cpu_count", lambda: 2, raising=False)
    assert portable.num_cores() == 2


def test_on_windows_no_folder_is_opened_and_no_mode_is_believed(monkeypatch, tmp_path):
    assert portable.permissions_of_others(0o644) == 0o044
    monkeypatch.setattr(sys, "platform", "win32")
    assert portable.permissions_of_others(0o666) == 0
    flush_folder(tmp_path / "cannot be opened")
    replace_whole(tmp_path / "file", b"a\nb")
    assert (tmp_path / "file").read_bytes() == b"a\nb"
