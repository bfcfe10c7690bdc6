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
    def aggregate(self, updates, model, streams):
        return covey.mean_per_cluster(updates, model, streams)
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


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run with a selection of the user's, and a file that grows at every import."""
    here = tmp_path_factory.mktemp("own")
    mark = here / "imported"
    (here / "mine.py").write_text(OWN.format(mark=str(mark)))
    return here, mark


def imported_here(here: Path, *words: object) -> None:
    """Run a command in a folder as if the process had just begun."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.delitem(sys.modules, "mine", raising=False)
        code, _, err = command(*words)
        assert code == 0, err


def test_reading_a_run_imports_nothing_of_the_users(own):
    here, mark = own
    imported_here(here, "run", *settings("method.selection=mine:choose"), "--out", "run")
    imported_here(here, "forget", "run", "client-00003", "--answer", "retrain")
    before = mark.read_text()
    assert before == "xx"
    (proof,) = here.glob("run/proofs/*.json")
    for words in (
        ("report", "run"),
        ("report", "run", "run", "--out", "two.html"),
        ("explain", "run", "client-00001"),
        ("verify", proof, "--ledger", "run"),
        ("export", "run", "--cluster", "0"),
    ):
        imported_here(here, *words)
    assert mark.read_text() == before


@pytest.mark.slow
def test_carrying_a_run_on_imports_from_where_it_was_started(own, tmp_path):
    here, mark = own
    covey(here, ["run", *settings("method.selection=mine:choose"), "--out", "elsewhere"])
    (tmp_path / "mine.py").write_text(OWN.format(mark=str(tmp_path / "another")))
    before = mark.read_text()
    for code, _, err in covey(
        tmp_path, ["resume", f"{here}/elsewhere"], ["audit", f"{here}/elsewhere"]
    ):
        assert code == 2
        assert "must be imported from where the run's first start did" in err
        assert "mine.py" in err
    assert not (tmp_path / "another").exists()
    assert mark.read_text() == before
    assert covey(here, ["resume", "elsewhere"])[0][0] == 0
    assert mark.read_text() > before


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
