"""What a command loads before it does anything: nobody waits for what it does not use."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from covey.cli.commands import Row, installed, loaded

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
TINY = {
    "rounds": 1,
    "data": {"name": "linear-mixture", "dimension": 4},
    "population": {"clients": 4, "examples_per_client": 20, "shift": "none"},
    "model": {"name": "linear-map", "task": "regression"},
    "risk": {"name": "none"},
}


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


def test_no_command_loads_anything_heavy_before_it_is_run(tmp_path):
    """Nor do those that need nothing, and none imports what a user's folder holds."""
    (tmp_path / "statistics.py").write_text("raise RuntimeError('hidden')")
    (tmp_path / "no.json").write_text("{}")
    every = """
import covey
covey.__version__
sys.path.remove("")  # which an installed command does not have
from covey.cli.commands import all_commands, installed, loaded
for name in installed():
    loaded(name)
all_commands()
"""
    words = (["--help"], ["--version"], ["config", "data", "list"], ["verify", "no.json"])
    modules, out = heavy(every + CALLS, json.dumps(words), cwd=tmp_path)
    assert modules == set()
    assert all(said in out for said in ("Privacy", "covey ", "train-images", "FAILED"))


@pytest.mark.parametrize(
    ("line", "offered"), [("covey ver", "verify"), ("covey verify --l", "--ledger")]
)
def test_completion_loads_nothing_heavy(line, offered):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    modules, out = called([], _COVEY_COMPLETE="complete_bash", **words)
    assert modules == set()
    assert offered in out.split()


def test_a_ledger_and_what_was_written_out_are_read_without_torch():
    names = ("ledger.store", "runtime.folder", "runtime.copies", "runtime.secrets")
    assert heavy(f"import {', '.join(f'covey.{n}' for n in names)}\n{LOADED}")[0] == {"sqlalchemy"}


@pytest.mark.parametrize("seen", [True, False])
def test_torch_only_checks_settings_that_no_session_has_seen(runs, tmp_path, seen):
    run = shutil.copytree(runs / "plain", tmp_path / "run")
    if not seen:
        with (run / "config.toml").open("a") as config:
            config.write("\n")
    for words, said in (
        (["runs", "list", str(tmp_path)], "finished"),
        (["explain", str(run), "client-00001"], "rounds trained: 0"),
    ):
        modules, out = called(words)
        assert ("torch" in modules) is not seen
        assert not seen or modules <= {"numpy", "sqlalchemy"}
        assert said in out


def test_a_round_begins_without_what_only_an_end_or_noise_needs(tmp_path):
    modules, _ = heavy(f"""
import os, covey
def told(history):  # before the first round
    {LOADED}
    sys.stderr.flush()
    os._exit(0)
covey.run(config={TINY!r}, out={str(tmp_path / "run")!r}, observe=told)
""")
    assert modules == {"jaxtyping", "numpy", "sqlalchemy", "torch"}


def test_a_row_of_another_package_says_what_its_command_says():
    rows = {name: row.help for name, row in installed().items() if isinstance(row, Row)}
    real = {name: loaded(name).help or "" for name in rows}
    assert rows == {n: text.split("\n\n")[0].replace("\n", " ") for n, text in real.items()}
