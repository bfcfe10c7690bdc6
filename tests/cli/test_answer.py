"""An answer is printed once: as one JSON object, or as lines."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from covey.base.as_json import HIDDEN, INLINE, OPTIONAL, json_of
from covey.cli.answer import TEXTS, Answer, Commands, show
from covey.cli.commands import all_commands


@dataclass(frozen=True)
class Part:
    size: int
    secret: str = field(default="no", metadata=HIDDEN)


@dataclass(frozen=True)
class Whole(Answer):
    path: Path
    part: Part = field(metadata=INLINE)
    parts: tuple[Part, ...] = ()
    more: Mapping[str, float] | None = field(default=None, metadata=OPTIONAL)

    @property
    def exit_code(self) -> int:
        return 0 if self.part.size else 1


@dataclass(frozen=True)
class Row:
    state: str


@dataclass(frozen=True)
class Rows:
    rows: tuple[Row, ...]


@pytest.fixture
def commands() -> Commands:
    app = Commands()

    @app.command()
    def one(size: int) -> Whole:
        return Whole(Path("a/b"), Part(size), (Part(1), Part(2)))

    @app.command()
    def many(size: int) -> Iterator[Whole]:
        yield Whole(Path("first"), Part(size))
        click.echo("then", err=True)

    @app.command()
    def asked(*, as_json: bool = False) -> Whole:
        return Whole(Path(str(as_json)), Part(1))

    return app


def call(app: typer.Typer, *words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.stdout, done.stderr


def test_inline_keys_stand_among_the_others_and_hidden_ones_nowhere():
    whole = Whole(Path("a"), Part(1), (Part(2),))
    assert json_of(whole) == {"path": "a", "size": 1, "parts": [{"size": 2}]}
    assert json_of(Whole(Path("a"), Part(1), (), {"x": 0.5}))["more"] == {"x": 0.5}


def test_what_is_returned_is_printed_and_ends_the_command(commands):
    code, out, _ = call(commands, "one", "3", "--json")
    assert (code, json.loads(out)) == (
        0,
        {"path": "a/b", "size": 3, "parts": [{"size": 1}, {"size": 2}]},
    )
    code, out, _ = call(commands, "one", "0")
    assert (code, out.splitlines()[:2]) == (1, ["path: a/b", "size: 0"])


def test_what_is_yielded_is_printed_before_the_command_goes_on(commands):
    code, out, err = call(commands, "many", "0", "--json")
    assert (code, json.loads(out)["path"], err) == (1, "first", "then\n")


def test_a_command_can_ask_whether_it_answers_in_json(commands):
    assert call(commands, "asked", "--as-json")[1].startswith('{\n  "path": "True"')
    assert call(commands, "asked")[1].startswith("path: False")


def test_every_text_is_of_a_class_that_is_there():
    all_commands()
    for name in TEXTS:
        module, _, kind = name.rpartition(".")
        assert is_dataclass(getattr(import_module(module), kind))


def test_colours_are_for_a_terminal_alone(monkeypatch):
    def printed(*, is_terminal: bool) -> str:
        out = StringIO()
        monkeypatch.setattr(out, "isatty", lambda: is_terminal, raising=False)
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        show(Rows((Row("damaged"),)))
        return out.getvalue()

    assert printed(is_terminal=False) == "state\ndamaged\n"
    assert "\x1b[1;31mdamaged" in printed(is_terminal=True)


def test_help_sorts_all_commands_under_four_heads():
    group = all_commands()
    panels: dict[str, list[str]] = {}
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        panels.setdefault(getattr(command, "rich_help_panel", ""), []).append(name)
    assert {panel: set(names) for panel, names in panels.items()} == {
        "Runs": {"run", "resume", "sweep", "report", "export", "runs", "reproduce"},
        "Privacy": {"audit", "guarantee", "explain"},
        "Leaving": {"forget", "clients", "requests", "verify"},
        "Operation": {"serve", "deploy", "ledger", "config"},
    }
