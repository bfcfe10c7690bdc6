"""An answer is printed once: as one JSON object, or as lines."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from covey.base.as_json import HIDDEN, INLINE, OPTIONAL, json_of
from covey.cli.answer import Answer, Commands


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
