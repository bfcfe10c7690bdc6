import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest

from covey.cli.app import main
from json_schemas import check_printed


def command(*words: object) -> tuple[int, str, str]:
    """Run a command: (exit code, standard output, standard error)."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", ["covey", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    if "--json" in words and out.getvalue():
        check_printed([*map(str, words)], json.loads(out.getvalue()))
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def json_of(*words: object) -> dict[str, Any]:
    """Run a command with --json and return its one object."""
    code, out, err = command(*words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="session")
def ask():
    """Run commands with --json, wherever we are."""
    return json_of


@pytest.fixture
def covey(monkeypatch, tmp_path):
    """Run commands in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return command


@pytest.fixture
def answer(monkeypatch, tmp_path):
    """Run commands with --json in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return json_of


SMALL = [
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


@pytest.fixture(scope="session")
def ran(once):
    """One small run with its baseline, only to be read: (its folder, its --json)."""

    def play(folder):
        told = json_of("run", *SMALL, "--out", folder / "one", "--with-baseline")
        (folder / "told.json").write_text(json.dumps(told))

    folder = once("cli", play)
    return folder / "one", json.loads((folder / "told.json").read_text())


@pytest.fixture
def copy_of_ran(ran, tmp_path):
    """The small run in a folder of one's own."""
    return shutil.copytree(ran[0], tmp_path / "a copy")


@pytest.fixture
def small() -> list[str]:
    return SMALL
