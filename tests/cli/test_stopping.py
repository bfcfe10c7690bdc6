"""Start-up, Ctrl-C and SIGTERM, logs, and a disk that is full."""

import json
import os
import shutil
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
    code, run, log = 128 + number, tmp_path / "one", Stopper("round 2/", number)
    before = signal.getsignal(signal.SIGTERM)
    words = ["covey", "run", *SMALL, "--out", str(run), "--json"]
    with monkeypatch.context() as patch, interrupts():
        patch.setattr(sys, "stderr", log)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
    said = f"stopped after round 2; continue: covey resume {run}"
    assert ended.value.code == code
    assert said in log.getvalue()
    assert "Traceback" not in log.getvalue()
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
    text = log.read_text()
    assert "round 2: " in text
    assert f"request of {names[leaver]} answered: retrain" in text
    assert "ended with exit code 0" in text
    assert "covey.run: round" in err  # -v
    assert not [secret for secret in [*names, salt] if secret in text]
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


HEAVY = {
    *("flwr", "jaxtyping", "matplotlib", "numpy", "pandas"),
    *("scipy", "sklearn", "sqlalchemy", "torch"),
}
LOADED = "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
CALLS = f"""
import atexit, contextlib, json, os, sys
atexit.register(lambda: exec({LOADED!r}))
from covey.cli.app import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["covey", *words]
    with contextlib.suppress(SystemExit):
        main()
"""


def heavy(program: str, *words: str, cwd=None, **environment: str) -> tuple[set[str], str]:
    """The heavy modules that a program has loaded at its end, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{program}", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | environment,
    )
    return HEAVY & set(json.loads(done.stderr.splitlines()[-1])), done.stdout


def called(*commands: list[str], **more: str) -> tuple[set[str], str]:
    return heavy(CALLS, json.dumps(commands), **more)


@pytest.mark.slow
def test_no_command_loads_anything_heavy_before_it_is_run(tmp_path):
    """Nor do those that need nothing, and none imports what a user's folder holds."""
    (tmp_path / "statistics.py").write_text("raise RuntimeError('hidden')")
    (tmp_path / "no.json").write_text("{}")
    every = """
import covey
covey.__version__
sys.path.remove("")  # which an installed command does not have
from covey.cli.commands import app, loaded
for name in app.list_commands(None):
    loaded(name)
"""
    words = (["--help"], ["--version"], ["config", "data", "list"], ["verify", "no.json"])
    modules, out = heavy(every + CALLS, json.dumps(words), cwd=tmp_path)
    assert modules == set()
    assert all(said in out for said in ("Privacy", "covey ", "train-images", "FAILED"))


def test_completion_loads_nothing_heavy():
    words = {"COMP_WORDS": "covey verify --led", "COMP_CWORD": "2"}
    modules, out = called([], _COVEY_COMPLETE="bash_complete", **words)
    assert modules == set()
    assert out.split() == ["plain,--ledger"]


def test_a_ledger_and_what_was_written_out_are_read_without_torch():
    names = ("ledger.store", "runs.folder", "leaving.copies", "runs.secrets")
    assert heavy(f"import {', '.join(f'covey.{n}' for n in names)}\n{LOADED}")[0] == {"sqlalchemy"}


@pytest.mark.slow
def test_torch_only_checks_settings_that_no_session_has_seen(runs, tmp_path):
    shutil.copytree(runs / "plain", run := tmp_path / "run")
    words = (["runs", "list", str(tmp_path)], ["explain", str(run), "client-00001"])
    modules, out = called(*words)
    assert modules <= {"numpy", "sqlalchemy"}
    assert "finished" in out
    assert "rounds trained: 0" in out
    with (run / "config.toml").open("a") as config:
        config.write("\n")
    assert "torch" in called(*words)[0]
