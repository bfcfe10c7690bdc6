"""What a command loads before it does anything: nobody waits for what it does not use."""

import json
import os
import shutil
import subprocess
import sys

import pytest

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
