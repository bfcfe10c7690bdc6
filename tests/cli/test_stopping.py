"""Ctrl-C and SIGTERM, logs, and a disk that is full."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import StringIO

import pytest

from cli.conftest import SMALL, sets
from covey import load, resume
from covey.cli.app import main


class Stopper(StringIO):
    """Standard error that sends this process a signal at certain words."""

    def __init__(self, words: str, number: int) -> None:
        super().__init__()
        self.words, self.number = words, number

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.words in text:
            self.words = "\0"  # once
            os.kill(os.getpid(), self.number)
        return written


@contextmanager
def interrupts() -> Generator[None]:
    """Take Ctrl-C as a terminal's process does; one in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_it_is_carried_on_and_is(monkeypatch, capsys, tmp_path, ran, number):
    code, run, told = 128 + number, tmp_path / "one", Stopper("round 2/", number)
    before = signal.getsignal(signal.SIGTERM)
    words = ["covey", "run", *SMALL, "--out", str(run), "--json"]
    with monkeypatch.context() as patch, interrupts():
        patch.setattr(sys, "stderr", told)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
    said = f"stopped after round 2; continue: covey resume {run}"
    assert ended.value.code == code
    assert said in told.getvalue()
    assert "Traceback" not in told.getvalue()
    error = {"type": "Stopped", "message": said, "exit_code": code}
    assert json.loads(capsys.readouterr().out)["error"] == error
    assert signal.getsignal(signal.SIGTERM) == before
    assert resume(run).summary.model_hash == ran[1]["model_hash"]


@pytest.mark.slow
def test_logs_tell_of_rounds_and_handles_and_of_no_client_by_name(covey, copy, tmp_path):
    folder, log = copy("hidden"), tmp_path / "log.txt"
    names = load(folder).names
    leaver = min(names)
    words = ("--log-file", log)
    code, out, err = covey("forget", folder, leaver, "--answer", "retrain", *words, "-v", "--json")
    assert code == 0, err
    salt = json.loads(out)["answers"][0]["salt"]
    told = log.read_text()
    assert "round 2: " in told
    assert f"request of {names[leaver]} answered: retrain" in told
    assert "ended with exit code 0" in told
    assert "covey.run: round" in err  # -v
    assert not [secret for secret in [*names, salt] if secret in told]
    code, _, err = covey("-q", "run", *SMALL, *sets("rounds=1"), "--out", "quiet")
    assert (code, err) == (0, "")


NARROW = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = ["covey", *sys.argv[2:]]
from covey.cli.app import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 3_000, 30_000, 100_000])
def test_a_disk_that_fills_up(tmp_path, room):
    """A limit on a file's size stands for a full disk: any user can set it."""
    words = ["run", *sets("rounds=3"), "--out", str(tmp_path / "run")]
    ran = subprocess.run(
        [sys.executable, "-c", NARROW, str(room), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stderr.replace("\n", " ")
    assert "Traceback" not in said
    assert "Internal error" not in said
    assert ran.returncode == 2
