"""Ctrl-C and SIGTERM, starts that fail, exit codes, errors as JSON, and logs."""

import json
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest

from covey import resume
from covey.base import errors
from covey.cli.app import exit_code, main
from covey.ledger.store import Ledger

COMMANDS_PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
TINY = [
    word
    for setting in (
        "rounds=3",
        "population.clients=6",
        "population.audit_examples=60",
        "model.name=mlp",
        "train.local_epochs=5",
        "risk.every=2",
    )
    for word in ("--set", setting)
]


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


def stopped(monkeypatch, number: int, *words: object) -> tuple[int, str]:
    told = Stopper("round 2/", number)
    with monkeypatch.context() as patch, interrupts():
        patch.setattr(sys, "stderr", told)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", ["covey", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0), told.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_it_is_carried_on_and_is(monkeypatch, capsys, tmp_path, ran, number):
    code = 128 + number
    before = signal.getsignal(signal.SIGTERM)
    run = tmp_path / "one"
    ended, told = stopped(monkeypatch, number, "run", *TINY, "--out", run, "--json")
    assert ended == code
    assert f"stopped after round 2; carry on: covey resume {run}" in told
    assert "Traceback" not in told
    assert json.loads(capsys.readouterr().out)["error"] == {
        "type": "Stopped",
        "message": f"stopped after round 2; carry on: covey resume {run}",
        "exit_code": code,
    }
    assert signal.getsignal(signal.SIGTERM) == before
    assert resume(run).summary.model_hash == ran[1]["model_hash"]


def test_a_stopped_sweep_names_itself(monkeypatch, tmp_path):
    (tmp_path / "one.toml").write_text("")
    words = ["sweep", tmp_path / "one.toml", "--over", "method.name=ifca"]
    code, told = stopped(monkeypatch, signal.SIGTERM, *words, *TINY, "--out", tmp_path / "sweep")
    assert code == 143
    assert "stopped after round 2; carry on: the same `covey sweep`" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "ledger.url=nonsense://x"], "Give a path, sqlite:///PATH"),
        (["--set", "ledger.url=postgresql://u@h/d"], "End it with ?run=NAME"),
        (["--set", "ledger.url=nowhere/ledger.sqlite"], "No such file or directory"),
        (["--set", "ledger.url=postgresql://u@127.0.0.1:1/d?run=a"], "Check the URL"),
    ],
)
def test_a_start_that_fails_leaves_nothing_behind(covey, tmp_path, words, said):
    code, out, err = covey("run", *TINY, *words, "--json")
    assert code == 2, err
    assert said in err.replace("\n", " ")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    told = json.loads(out)["error"]
    assert told["type"] == "LedgerUnavailable"
    assert told["exit_code"] == 2
    assert said in told["message"]


def test_without_psycopg_the_start_says_what_to_install(covey, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    where = "ledger.url=postgresql://u@127.0.0.1:1/d?run=a"
    code, _, err = covey("run", *TINY, "--set", where)
    assert code == 2
    assert "Install covey[postgres]" in err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_there_before_stays_whatever_fails(covey, tmp_path, ran):
    folder, _ = ran
    run = tmp_path / "run"
    run.mkdir()
    settings = (folder / "config.toml").read_text()
    (run / "config.toml").write_text(settings.replace('url = ""', 'url = "no://x"'))
    assert covey("resume", run)[0] == 2
    assert [each.name for each in run.iterdir()] == ["config.toml"]


def test_an_error_after_the_answer_adds_no_second_object(covey, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"no data")
    code, out, err = covey("config", "data", "check", "--dir", tmp_path, "--json")
    assert code == 2
    assert "not the published ones" in err
    assert "files" in json.loads(out)


def test_bad_options_are_json_too(covey):
    code, out, err = covey("run", "--frobnicate", "--json")
    assert code == 2
    assert json.loads(out)["error"]["type"] == "UsageError"
    assert "No such option" in err


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("ConfigError", 2),
        ("DataError", 2),
        ("ModelError", 2),
        ("RunError", 2),
        ("LedgerUnavailable", 2),
        ("LedgerLocked", 2),
        ("LedgerMismatch", 1),
        ("LedgerError", 1),
    ],
)
def test_exit_codes_tell_a_failed_check_from_bad_input(kind, code):
    assert exit_code(getattr(errors, kind)("")) == code
    assert f"`{kind}`" in COMMANDS_PAGE.read_text()


def test_logs_tell_of_rounds_and_handles_and_of_no_client_by_name(covey, tmp_path):
    words = ["--log-file", tmp_path / "log.txt"]
    code, _, err = covey("-q", *words, "run", *TINY, "--out", "one")
    assert (code, err) == (0, "")
    with Ledger.read(tmp_path / "one" / "ledger.sqlite") as ledger:
        names = ledger.names()
    leaver = min(names.values())
    code, out, err = covey("forget", "one", leaver, "--answer", "retrain", *words, "-v", "--json")
    assert code == 0, err
    salt = json.loads(out)["answers"][0]["salt"]
    log = (tmp_path / "log.txt").read_text()
    handle = next(handle for handle, name in names.items() if name == leaver)
    assert "round 3: " in log
    assert f"request of {handle} answered: retrain" in log
    assert "ended with exit code 0" in log
    assert "covey.run: round" in err  # -v
    assert not [secret for secret in [*names.values(), salt] if secret in log]
    covey("config", "data", "list")
    assert (tmp_path / "log.txt").read_text() == log


def test_a_log_file_that_cannot_be_written_is_refused(covey, tmp_path):
    code, _, err = covey("config", "data", "list", "--log-file", tmp_path / "no" / "log.txt")
    assert code == 2
    assert "--log-file must be a file that can be written" in err.replace("\n", " ")
