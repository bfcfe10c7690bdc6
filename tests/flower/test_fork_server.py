"""Client apps are forked where a node has a fork server, and started as ever elsewhere."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from covey.flower import fork_server as launcher
from flower.deployment import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")

FLOWERS_OWN = "#!/bin/sh\necho Flower has started $0 in $PWD with $*\n"

PARENT = """
import os, subprocess, sys
module = [sys.executable, "-P", "-m", "covey.flower.fork_server", "serve"]
words = [*module, sys.argv[1], str(os.getpid())]
print(subprocess.Popen(words, stdout=subprocess.DEVNULL).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a fork server, whose path is longer than a socket's may be."""
    inner = tmp_path / ("a long name " * 10)
    inner.mkdir()
    return inner / "fork-server"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Where a program of the same name is, as Flower has one."""
    place = tmp_path / "programs" / launcher.PROGRAM
    place.parent.mkdir()
    place.write_text(FLOWERS_OWN)
    place.chmod(0o700)
    return place.parent


def launched(folder: Path, programs: Path, *words: str) -> list[str]:
    """Start the program as a node of Flower's does: the first on PATH."""
    path = os.pathsep.join([str(folder), str(programs), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", f'{launcher.PROGRAM} "$@"', "sh", *words],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def own_start(programs: Path, *words: str) -> list[str]:
    started = f"Flower has started {programs / launcher.PROGRAM} in {Path.cwd()}"
    return [" ".join([started, "with", *words])]


def handed_over(folder: Path, programs: Path, *words: str) -> list[str]:
    """Run the launcher itself."""
    file = str(launcher.__file__)
    done = subprocess.run(
        [sys.executable, "-I", "-S", file, "hand-over", str(folder), *words],
        env={"PATH": os.pathsep.join([str(folder), str(programs), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_without_a_fork_server_flowers_own_program_runs(folder, programs):
    assert handed_over(folder, programs, "--token", "a b") == own_start(programs, "--token", "a b")


def test_a_socket_that_nobody_answers_is_none(folder, programs, monkeypatch):
    folder.mkdir()
    monkeypatch.chdir(folder)
    with closing(socket(AF_UNIX)) as dead:
        dead.bind(launcher.SOCKET)
    monkeypatch.undo()
    assert handed_over(folder, programs, "--help") == own_start(programs, "--help")


@contextmanager
def fork_server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start one; yield the process that it belongs to, and its id."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        until(lambda: (folder / launcher.PROGRAM).exists(), "the fork server listens")
        yield parent, number


def gone(number: int) -> bool:
    return not Path(f"/proc/{number}").exists()


@pytest.mark.slow
def test_a_launch_is_forked_and_flowers_own_once_the_server_is_killed(folder, programs):
    with fork_server(folder) as (_, number):
        assert folder.stat().st_mode & 0o077 == 0
        for _ in range(2):
            usage, *_ = launched(folder, programs, "--help")
            assert usage.startswith(f"usage: {launcher.PROGRAM} [-h]")
        os.kill(number, 9)
        assert launched(folder, programs, "--help") == own_start(programs, "--help")


@pytest.mark.slow
def test_a_fork_server_outlives_no_node_and_leaves_nothing(folder, programs):
    with fork_server(folder) as (parent, number):
        assert parent.stdin is not None
        parent.stdin.close()
        parent.wait()
        until(lambda: gone(number), "the fork server has ended")
    assert list(folder.iterdir()) == []
