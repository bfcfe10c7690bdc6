"""The examples run as they stand."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import covey
from covey import Config

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def test_own_model_finds_both_kinds_of_clients_and_lets_one_go(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    out = tmp_path / "own"
    example = runpy.run_path(str(EXAMPLES / "own_model.py"))
    example["main"](str(out))
    printed = capsys.readouterr().out
    assert float(printed.split("examples: ")[1][:4]) > 0.8
    assert "client-00000 uses 82 parameters" in printed  # 2*16+16 + 16*2+2
    proof = printed.split("has left: ")[1].splitlines()[0]
    assert covey.verify(proof, run=out).valid


def test_the_readme_shows_the_program_of_the_front_page():
    shown = [
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        for page in ("README.md", "docs/index.md")
    ]
    assert len(shown[0]) == 1
    assert shown[0] == shown[1]


def test_the_programs_of_the_page_on_python_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    page = (ROOT / "docs" / "python.md").read_text()
    first, *later = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(first, "docs/python.md", "exec"), names)  # noqa: S102 - our own
    accuracy, *clusters, proof = capsys.readouterr().out.splitlines()
    assert float(accuracy) > 0.8
    assert [line.split()[0] for line in clusters] == ["3", "9"]
    assert covey.verify(proof, run="runs/mine").valid
    exec(compile("\n".join(later), "docs/python.md", "exec"), names)  # noqa: S102
    *plan, proof_and_salt = capsys.readouterr().out.splitlines()
    assert "retrain True" in " ".join(plan)
    assert "site-3" not in covey.load("runs/mine").names
    proof, salt = proof_and_salt.split()
    found = covey.verify(proof, name_and_salt=("site-3", salt))
    assert found.failed == ()


@pytest.mark.slow
def test_the_programs_of_the_page_on_notebooks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "notebooks.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile("\n".join(programs), "docs/notebooks.md", "exec"), names)  # noqa: S102
    assert [each.round for each in names["rows"]] == [*range(len(names["rows"]))]
    assert set(names["swept"].frame()["method.name"]) == {"fedavg", "ifca-mir"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.stem)
def test_settings_in_examples_are_valid(path):
    assert Config.of(tomllib.loads(path.read_text()))


def test_vectors_of_ones_own_are_enough_to_learn_from_and_to_leave(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    example = runpy.run_path(str(EXAMPLES / "embeddings.py"))
    example["main"](str(tmp_path / "run"))
    printed = capsys.readouterr().out
    assert float(printed.split("examples: ")[1][:4]) > 0.8
    assert "that failed: []" in printed
