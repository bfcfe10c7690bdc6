"""An answer is printed once: as one JSON object, or as lines, letter by letter."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import covey as package
from covey.base.as_json import HIDDEN, INLINE, OPTIONAL, json_of
from covey.cli import commands
from covey.cli.answer import CommandResult, fail_if
from covey.cli.commands import CommandGroup, app, argument, loaded
from covey_site.schemas import ERROR, FILES, outputs
from json_schemas import check_json
from support.runs import small


@dataclass(frozen=True)
class Part:
    size: int
    secret: str = field(default="no", metadata=HIDDEN)


@dataclass(frozen=True)
class Whole(CommandResult):
    path: Path
    part: Part = field(metadata=INLINE)
    parts: tuple[Part, ...] = ()
    more: Mapping[str, float] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Row:
    state: str


@dataclass(frozen=True)
class Rows:
    rows: tuple[Row, ...]


def test_what_is_returned_or_yielded_is_printed_and_ends_the_command():
    group = CommandGroup("test")

    @group.command()
    @argument("size", type=int, help="How large.")
    def one(size: int) -> Whole:
        return Whole(Path("one"), Part(size), (Part(1), Part(2)))

    @group.command()
    @argument("size", type=int, help="How large.")
    def many(size: int) -> Iterator[Whole]:
        yield Whole(Path("first"), Part(size), (), {"x": 0.5})
        click.echo("then", err=True)
        fail_if(not size)

    def call(*words: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(group, words)
        return done.exit_code, done.stdout, done.stderr

    code, out, _ = call("one", "3", "--json")
    parts = [{"size": 1}, {"size": 2}]  # inline keys among the others, hidden ones nowhere
    assert (code, json.loads(out)) == (0, {"path": "one", "size": 3, "parts": parts})
    code, out, err = call("many", "0", "--json")
    assert (code, json.loads(out)["more"], err) == (1, {"x": 0.5}, "then\n")
    code, out, _ = call("one", "0")
    assert (code, out.splitlines()[:2]) == (0, ["path: one", "size: 0"])


def every_command() -> Iterator[tuple[str, click.Command]]:
    waiting = [(name, loaded(name)) for name in app.list_commands(click.Context(app))]
    while waiting:
        path, command = waiting.pop()
        waiting += [(f"{path} {n}", c) for n, c in getattr(command, "commands", {}).items()]
        yield path, command


def commands_with_json() -> Iterator[str]:
    for path, command in every_command():
        if any("--json" in param.opts for param in command.params):
            yield path


def test_help_of_every_command_names_its_options_and_of_all_its_four_panels(covey):
    code, out, _ = covey("--help")
    assert code == 0
    assert [out.index(f"─ {command} ─") for command in commands.OWN] == sorted(
        out.index(f"─ {command} ─") for command in commands.OWN
    )
    for path, command in every_command():
        assert f"{path.split()[0]} " in out
        code, printed, err = covey(*path.split(), "--help")
        assert (code, err) == (0, ""), path
        flat = " ".join(printed.replace("│", " ").split())
        assert f"Usage: covey {path} " in flat
        options = [param.opts[0] for param in command.params if param.opts[0].startswith("-")]
        assert [option for option in options if option not in flat] == [], path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("runn", "No such command 'runn'. Did you mean 'run' or 'runs'?"),
        ("runs lst", "No such command 'lst'. Did you mean 'list'?"),
        ("run --with-base", "--with-baseline"),
        ("sweep c.toml", "Missing option '--over'"),
        ("guarantee --steps many", "Invalid value for '--steps': 'many' is not a valid integer"),
        ("config data fetch", "'fetch' is not one of 'list', 'check'"),
    ],
)
def test_a_mistyped_word_is_a_sentence_and_a_hint(covey, words, said):
    code, out, err = covey(*words.split())
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err


def test_every_command_with_json_has_a_schema_and_every_schema_a_command():
    assert set(commands_with_json()) == outputs().keys() - {ERROR}


LAST = "client-00002"
TINY = small(rounds=4, population={"clients": 4, "examples_per_client": 30})


@pytest.mark.slow
def test_what_a_run_and_its_answers_write(answer):
    package.run(config=TINY, out="runs/one")
    (first_answer,) = answer("forget", "runs/one", LAST, "--basis", "erasure")["answers"]
    check_json("proofs/REQUEST.json", json.loads(Path(first_answer["proof"]).read_text()))
    receipt = json.loads(Path(first_answer["receipt"]["path"]).read_text())
    check_json("receipts/REQUEST.json", receipt)
    assert (
        answer("forget", "runs/one", "--received", first_answer["request"])["unacknowledged"] == []
    )
    check_json("Run.summary", json_of(package.load("runs/one").summary))


@pytest.mark.parametrize("path", sorted(Path("docs/results").rglob("*.json")), ids=str)
def test_records_of_experiments_that_are_kept_here(path):
    file = "measured/RUN.json" if path.parent.name == "measured" else "EXPERIMENT.json"
    name = f"{file} of covey reproduce"
    assert name in FILES
    check_json(name, json.loads(path.read_text()))


# commands of other packages

BRINGS = """
from covey.cli.commands import CommandRow

ROW = CommandRow("their.greeting:greet", "Greet.")
"""
GREETING = """
from dataclasses import dataclass
from covey.cli.answer import CommandResult
from covey.cli.commands import command

@dataclass(frozen=True)
class Greeting(CommandResult):
    "A greeting."
    word: str

@command()
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
        entry_points = [metadata.EntryPoint(name, value, commands.ENTRY_POINTS)]
        monkeypatch.setattr(metadata, "entry_points", lambda **_: entry_points)
        commands.installed.cache_clear()

    yield put
    commands.installed.cache_clear()
    for name in [module for module in sys.modules if module.startswith("their")]:
        del sys.modules[name]


def test_a_package_brings_a_command_that_is_listed_and_runs(point, covey):
    point("greet", "their:ROW")
    code, out, _ = covey("--help")
    assert code == 0
    assert "Greet." in out
    assert covey("greet")[:2] == (0, "word: good day\n")


def test_a_command_of_covey_s_own_looks_for_no_other_package(monkeypatch, covey):
    def looked(**_: object) -> object:
        raise AssertionError("entry points are read for a command that covey has")

    monkeypatch.setattr(metadata, "entry_points", looked)
    commands.installed.cache_clear()
    assert covey("config", "data", "list")[0] == 0


def test_what_cannot_be_loaded_is_a_sentence_and_hides_nothing(point, covey):
    point("lost", "nobody:ROW")
    code, out, err = covey("lost")
    assert (code, out) == (2, "")
    assert "The command 'lost' must be a covey.cli.commands.CommandRow at nobody:ROW, found" in err
    assert covey("--help")[0] == 0
