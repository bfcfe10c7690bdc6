"""`covey serve` from the command line."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WITHOUT = """
import sys
sys.modules["starlette"] = None
sys.argv = ["covey", *sys.argv[1:]]
from covey.cli.app import main
main()
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def without_the_extra(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )


def test_without_the_extra_it_says_what_to_install():
    ran = without_the_extra("serve", ".")
    assert ran.returncode == 2
    assert 'pip install "PATH[serve]"' in ran.stderr


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Leave no process behind, whatever fails."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends it at once there")
def test_it_listens_on_this_machine_alone_until_it_is_stopped(tmp_path: Path):
    command = [sys.executable, "-m", "covey", "serve", str(tmp_path), "--port", "0"]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        ) as served,
        ended(served),
    ):
        assert served.stdout is not None
        link = served.stdout.readline().split()[-1]
        port = int(link.split(":")[2].split("/")[0])
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/")
        refused.value.close()
        assert refused.value.code == 401
        with socket.socket() as elsewhere:  # 127.0.0.2 is this machine, too
            assert elsewhere.connect_ex(("127.0.0.2", port)) != 0
        served.send_signal(signal.SIGTERM)
        assert served.wait(timeout=60) == 143  # under load
