"""What a command loads before it does anything: nobody waits for what it does not use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import covey
from covey.cli import commands
from covey.cli.commands import MODULES, Row, installed, loaded

HEAVY = {
    "flwr",
    "jaxtyping",
    "matplotlib",
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "sqlalchemy",
    "torch",
}

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
MAIN = f"""
import atexit
atexit.register(lambda: exec({LOADED!r}))
from covey.cli.app import main
main()
"""


TINY = {
    "rounds": 1,
    "data": {"name": "linear-mixture", "dimension": 4},
    "population": {"clients": 4, "examples_per_client": 20, "shift": "none"},
    "model": {"name": "linear-map", "task": "regression"},
    "risk": {"name": "none"},
}


def heavy(program: str, *words: str, **environment: str) -> tuple[set[str], str]:
    """The heavy modules that a program has loaded at its end, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    return HEAVY & set(json.loads(done.stderr.splitlines()[-1])), done.stdout


def test_importing_covey_loads_nothing_heavy():
    assert heavy(f"import covey; covey.__version__; {LOADED}")[0] == set()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--help"], "Privacy"),
        (["--version"], "covey "),
        (["config", "data", "list"], "train-images"),
        (["verify", "pyproject.toml"], "FAILED"),
    ],
)
def test_a_command_loads_nothing_heavy(words, said):
    modules, out = heavy(MAIN, *words)
    assert modules == set()
    assert said in out


@pytest.mark.parametrize(
    ("line", "offered"), [("covey ver", "verify"), ("covey verify --l", "--ledger")]
)
def test_completion_loads_nothing_heavy(line, offered):
    modules, out = heavy(
        f"import sys; sys.argv = ['covey']\n{MAIN}",
        _COVEY_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
    )
    assert modules == set()
    assert offered in out.split()


@pytest.mark.parametrize("names", ["ledger.store runtime.folder", "runtime.copies runtime.secrets"])
def test_a_ledger_and_what_was_written_out_are_read_without_torch(names):
    program = "".join(f"import covey.{each}\n" for each in names.split())
    assert heavy(program + LOADED)[0] == {"sqlalchemy"}


@pytest.mark.parametrize("seen", [True, False])
def test_torch_only_checks_settings_that_no_session_has_seen(tmp_path, seen):
    path = covey.run(config=TINY, out=tmp_path / "run").folder / "config.toml"
    if not seen:
        path.write_text(f"{path.read_text()}\n")
    for words, said in ((["runs", "list"], "finished"), (["explain"], "rounds trained: 0")):
        place = [tmp_path] if len(words) > 1 else [path.parent, "client-00001"]
        modules, out = heavy(MAIN, *words, *map(str, place))
        assert ("torch" in modules) is not seen
        assert not seen or modules <= {"numpy", "sqlalchemy"}
        assert said in out


def test_a_round_begins_without_what_only_an_end_or_noise_needs(tmp_path):
    modules, _ = heavy(f"""
import os, sys, covey
def told(history):  # before the first round
    exec({LOADED!r})
    sys.stderr.flush()
    os._exit(0)
covey.run(config={TINY!r}, out={str(tmp_path / "run")!r}, observe=told)
""")
    assert modules == {"jaxtyping", "numpy", "sqlalchemy", "torch"}


def test_a_users_folder_hides_no_module_of_pythons_own(tmp_path, monkeypatch):
    (tmp_path / "statistics.py").write_text("raise RuntimeError('hidden')")
    (tmp_path / "mine.py").write_text("answer = 42")
    monkeypatch.chdir(tmp_path)
    program = f"""
import atexit, sys
sys.path.remove("")  # which an installed command does not have
def told():
    import mine, statistics
    exec({LOADED!r})
atexit.register(told)
from covey.cli.app import main
main()
"""
    modules, out = heavy(program, "--version")
    assert (modules, out[:6]) == (set(), "covey ")


def test_no_command_loads_anything_heavy_before_it_is_run():
    modules, _ = heavy(
        f"""
from covey.cli.commands import all_commands, installed, loaded
for name in installed():
    loaded(name)
all_commands()
{LOADED}
"""
    )
    assert modules == set()


def test_a_row_of_another_package_says_what_its_command_says():
    rows = {name: row.help for name, row in installed().items() if isinstance(row, Row)}
    real = {name: loaded(name).help or "" for name in rows}
    assert rows == {n: text.split("\n\n")[0].replace("\n", " ") for n, text in real.items()}


def test_every_module_of_commands_is_named():
    texts = {p.stem: p.read_text() for p in Path(commands.__file__).parent.glob("*.py")}
    adds = ("@app.command(", "app.add_typer(")
    assert {name for name, text in texts.items() if any(a in text for a in adds)} == {*MODULES}
