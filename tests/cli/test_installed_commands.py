"""Commands that other packages bring."""

import sys
from importlib import metadata

import pytest

from covey.cli import commands
from covey.cli.app import app

BRINGS = """
from covey.cli.commands import Row
from covey.cli.app import app

ROW = Row("their.greeting", "Greet.")
"""
GREETING = """
from dataclasses import dataclass
from covey.cli.answer import Answer
from covey.cli.app import app

@dataclass(frozen=True)
class Greeting(Answer):
    "A greeting."
    word: str

@app.command()
def greet() -> Greeting:
    "Greet."
    return Greeting("good day")
"""


@pytest.fixture
def point(monkeypatch, tmp_path):
    """Install entry points, as `pip install` of another package would."""
    (tmp_path / "their").mkdir()
    (tmp_path / "their" / "__init__.py").write_text(BRINGS)
    (tmp_path / "their" / "greeting.py").write_text(GREETING)
    monkeypatch.syspath_prepend(tmp_path)

    def put(name: str, value: str) -> None:
        found = [metadata.EntryPoint(name, value, commands.GROUP)]
        monkeypatch.setattr(metadata, "entry_points", lambda **_: found)
        commands.installed.cache_clear()

    yield put
    commands.installed.cache_clear()
    known = app.registered_commands
    known[:] = [e for e in known if getattr(e.callback, "__name__", "") != "greet"]
    for name in [each for each in sys.modules if each.startswith("their")]:
        del sys.modules[name]


def test_a_package_brings_a_command_that_is_listed_and_runs(point, covey):
    point("greet", "their:ROW")
    code, out, _ = covey("--help")
    assert code == 0
    assert "Greet." in out
    assert "their.greeting" not in sys.modules
    code, out, _ = covey("greet")
    assert (code, out) == (0, "word: good day\n")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("nobody:ROW", "importing it failed: No module named 'nobody'"),
        ("their:app", "that is a Commands and not a covey.cli.commands.Row"),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence_and_hides_nothing(point, covey, value, why):
    point("lost", value)
    code, out, err = covey("lost")
    assert (code, out) == (2, "")
    assert f"The command 'lost' should be at {value}, but {why}." in err
    assert covey("--help")[0] == 0
    assert covey("config", "data", "list")[0] == 0


def test_no_package_replaces_a_command_of_coveys_own(point, covey):
    point("run", "their:ROW")
    assert "Play a federation" in covey("run", "--help")[1]
    assert "Greet." not in covey("--help")[1]


def test_the_second_package_brings_the_command_of_the_papers():
    assert "reproduce" in commands.installed()
