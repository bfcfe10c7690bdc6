import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import covey as package
from covey.cli.app import main
from json_schemas import check_printed
from support.runs import small

needs_flower = pytest.mark.skipif(find_spec("flwr") is None, reason="needs the extra flower")


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


def refused(said: str, *words: object) -> None:
    """Fail unless a command ends with one sentence that says this, and prints nothing."""
    code, out, err = command(*words)
    assert (code, out) == (2, ""), (words, err)
    assert said in " ".join(err.split()), words
    assert "Traceback" not in err
    assert "Internal error" not in err


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


def sets(*settings: str) -> list[str]:
    """Settings as words of a command."""
    return [word for setting in settings for word in ("--set", setting)]


SMALL = sets(
    "rounds=3",
    "population.clients=6",
    "population.audit_examples=60",
    "model.name=linear",
    "method.initialisation=random",
    "train.local_epochs=5",
    "risk.every=2",
)


@pytest.fixture(scope="session")
def ran(once):
    """One small run with its baseline, only to be read: (its folder, its --json)."""

    def play(folder):
        printed = json_of("run", *SMALL, "--out", folder / "one", "--with-baseline")
        (folder / "told.json").write_text(json.dumps(printed))

    folder = once("cli", play)
    return folder / "one", json.loads((folder / "told.json").read_text())


@pytest.fixture
def copy_of_ran(ran, tmp_path):
    """The small run in a folder of one's own."""
    return shutil.copytree(ran[0], tmp_path / "a copy")


HIDDEN = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3}
LEAVING = small(population={"clients": 8}, train={"local_epochs": 1})
KINDS: dict[str, dict[str, Any]] = {
    "hidden": {"aggregation": HIDDEN},
    "other": {"aggregation": HIDDEN, "seed": 1},
    "plain": {"rounds": 1},
    "stored": {"rounds": 1, "aggregation": HIDDEN, "leaving": {"store_updates": 1}},
    "local": {"rounds": 1, "method": {"name": "local"}},
}


@pytest.fixture(scope="session")
def runs(once) -> Path:
    """Small runs of several kinds, only to be read, each in a folder of its kind's name."""

    def play(folder: Path) -> None:
        for name, more in KINDS.items():
            package.run(config=package.Config.of({**LEAVING, **more}), out=folder / name)

    return once("leaving", play)


@pytest.fixture
def copy(runs, tmp_path):
    """A run of a kind, to be changed."""
    return lambda kind: shutil.copytree(runs / kind, tmp_path / kind)
