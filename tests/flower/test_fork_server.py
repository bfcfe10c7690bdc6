"""Client apps are forked where a node has a fork server, and started as ever elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey_flower import fork_server as launcher
from flower.deployment import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux"),
]

FLOWERS_OWN = "#!/bin/sh\necho Flower has started $0 in $PWD with $*\n"

PARENT = """
import os, subprocess, sys
module = [sys.executable, "-P", "-m", "covey_flower.fork_server", "serve"]
words = [*module, sys.argv[1], str(os.getpid())]
print(subprocess.Popen(words, stdout=subprocess.DEVNULL).pid, flush=True)
sys.stdin.read()
"""


def launched(folder: Path, programs: Path, *words: str) -> str:
    """Start the program as a node of Flower's does: the first on PATH."""
    done = subprocess.run(
        ["sh", "-c", f'{launcher.PROGRAM} "$@"', "sh", *words],
        env={**os.environ, "PATH": os.pathsep.join([str(folder), str(programs), "/usr/bin:/bin"])},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("dies", ["server", "parent"])
def test_a_launch_is_forked_and_flowers_own_once_the_server_is_gone(tmp_path: Path, dies: str):
    place = tmp_path / "programs" / launcher.PROGRAM  # a program of the same name
    place.parent.mkdir()
    place.write_text(FLOWERS_OWN)
    place.chmod(0o700)
    own = f"Flower has started {place} in {Path.cwd()} with --help"
    folder = tmp_path / ("a long name " * 10) / "fork-server"  # longer than a socket's path may be
    folder.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        number = int(parent.stdout.readline())
        until(lambda: (folder / launcher.PROGRAM).exists(), "the fork server listens")
        assert folder.stat().st_mode & 0o077 == 0
        for _ in range(2):
            said = launched(folder, place.parent, "--help")
            assert said.startswith(f"usage: {launcher.PROGRAM} [-h]")
        if dies == "server":
            os.kill(number, 9)  # its socket stays
            assert launched(folder, place.parent, "--help").strip() == own
        parent.stdin.close()
    if dies == "parent":  # who outlives no node, and leaves nothing
        until(lambda: not Path(f"/proc/{number}").exists(), "the fork server has ended")
        assert list(folder.iterdir()) == []
        assert launched(folder, place.parent, "--help").strip() == own
