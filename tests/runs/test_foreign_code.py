"""A run's settings name code: who reads a run runs none of it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import command, sets

OWN = """
from pathlib import Path

with Path({mark!r}).open("a") as mark:
    mark.write("x")

import covey
from covey.algorithms.selection import SelectionInputs


def choose(inputs: SelectionInputs):
    return inputs.losses.argmin(1)


class Mean(covey.ClusterwiseAggregation):
    def combined(self, updates):
        return updates[0].update
"""

SETTINGS = (
    *("rounds=2", "model.name=mlp", "risk.name=none", "engine.name=reference"),
    *("population.clients=6", "population.audit_examples=0", "population.examples_per_client=20"),
)


RUNNER = """
import contextlib, io, json, sys
if "" in sys.path:
    sys.path.remove("")
from covey.cli.app import main
path, told = list(sys.path), []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    sys.argv, sys.path[:] = ["covey", *words], path
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            told.append([ended.code or 0, out.getvalue(), err.getvalue()])
print(json.dumps(told))
"""


def covey(here: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Run commands as they are installed: in a folder, and from nowhere else."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(commands)],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def settings(*more: str) -> list[str]:
    return sets(*SETTINGS, *more)


@pytest.mark.slow
def test_reading_a_run_imports_nothing_of_the_users(tmp_path, monkeypatch):
    """Though it has a selection of the user's, in a file that notes each import."""
    mark = tmp_path / "imported"
    (tmp_path / "mine.py").write_text(OWN.format(mark=str(mark)))
    monkeypatch.chdir(tmp_path)
    for words in (
        ("run", *settings("method.selection=mine:choose"), "--out", "run"),
        ("report", "run"),
        ("explain", "run", "client-00001"),
        ("export", "run", "--cluster", "0"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.delitem(sys.modules, "mine", raising=False)  # as in a process that just began
            code, _, err = command(*words)
        assert code == 0, err
        assert mark.read_text() == "x", words


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    here = tmp_path_factory.mktemp("plain")
    ((code, _, err),) = covey(here, ["run", *settings(), "--out", "run"])
    assert code == 0, err
    return here / "run"


NAMED = ("data.name", "model.name", "risk.name", "aggregation.name", "method.selection.name")


@pytest.mark.slow
def test_a_strangers_settings_run_nothing_where_a_run_is_read(plain, tmp_path):
    """Python's own functions need no file; others lie in the folder that was sent."""
    mark, commands = tmp_path / "imported", []
    (tmp_path / "evil.py").write_text(OWN.format(mark=str(mark)))
    written = (plain / "config.toml").read_text()
    for key in NAMED:
        section, name = key.rsplit(".", 1)
        pattern = rf'(?ms)^(\[{section}\]\n(?:(?!^\[).)*?^{name} = )"[^"]*"'
        for code in ("evil:choose", "os:abort"):
            folder = shutil.copytree(plain, tmp_path / f"{section}-{code[:2]}")
            changed, count = re.subn(pattern, rf'\1"{code}"', written)
            assert count == 1
            (folder / "config.toml").write_text(changed)
            at = folder.name
            commands += [["explain", at, "client-00001"], ["resume", at]]
        commands += [["report", at], ["export", at, "--cluster", "0"]]
    done = covey(tmp_path, *commands)  # which os:abort would have ended
    assert len(done) == len(commands)
    assert {code for code, _, _ in done} <= {0, 2}, done
    assert all(
        code == 2 for (code, _, _), c in zip(done, commands, strict=True) if c[0] == "resume"
    )
    assert not mark.exists()


@pytest.mark.slow
def test_a_module_in_the_current_folder_is_no_part_of_a_reading_command(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "run")
    mark = tmp_path / "imported"
    for name in ("safetensors", "matplotlib", "jinja2", "sqlalchemy", "tomli_w"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').write({name!r})")
    assert covey(tmp_path, ["report", str(folder)])[0][0] == 0
    assert not mark.exists()
