"""covey on systems that lack what Linux has, played on Linux."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey.base import files as portable
from covey.base.files import flush_folder, replace_whole

ELSEWHERE = """
import os, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "getuid", "geteuid", "sched_getaffinity"):
    vars(os).pop(name, None)
from pathlib import Path
import covey
from covey.cli.app import main
from covey.cli.commands import all_commands, installed, loaded
for name in installed():
    loaded(name)
all_commands()
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


STEPS = """
import resource, sys, threading
import numpy as np
from covey.base.files import keep_freed_memory

if len(sys.argv) > 1:
    print(keep_freed_memory(2**26, 2**25), end=" ")

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def steps():
    for step in range(60):
        if step == 10:
            before = page_faults()
        held = [np.ones(300_000) for _ in range(3)]
        del held
    print((page_faults() - before) // 50)

thread = threading.Thread(target=steps)
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_freed_memory_is_kept_for_the_next_step_unless_the_environment_says_else():
    free = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}

    def said(*words: str, **more: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", STEPS, *words],
            capture_output=True,
            text=True,
            check=True,
            env={**free, **more},
        )
        return done.stdout.split()

    kept, faults = said("keep")
    if kept == "False":
        pytest.skip("the system's library is not glibc")
    assert int(faults) < 20
    assert int(said()[0]) > 200
    assert said("keep", MALLOC_TRIM_THRESHOLD_="1048576")[0] == "False"
    assert said("keep", GLIBC_TUNABLES="glibc.malloc.arena_max=2")[0] == "False"
