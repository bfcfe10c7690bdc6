"""What commands answer, and how it is printed: one JSON object, or lines of text.

A command returns one frozen dataclass, or yields it and goes on. Its fields are the keys of
the JSON object, and its return type is what the site makes the command's JSON schema from.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from io import StringIO
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperOption

from covey.base.as_json import HIDDEN as HIDDEN
from covey.base.as_json import INLINE as INLINE
from covey.base.as_json import OPTIONAL as OPTIONAL
from covey.base.as_json import json_of

JSON_HELP = "Print exactly one JSON object on standard output."
JsonOption = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
"""For a command that does something else with `--json`; all others take it anyway."""

WIDTH = 240
"""Characters: no cell wraps, whatever the terminal; the terminal itself may."""

has_answered: ContextVar[bool] = ContextVar("has_answered", default=False)
"""Whether standard output has its one JSON object."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answers: its fields are the keys of the JSON object."""

    @property
    def exit_code(self) -> int:
        """What the command ends with, once it has said everything."""
        return 0

    def lines(self) -> Iterator[str]:
        """Return the text for a person, line by line: here, of every key."""
        for key, value in json_of(self).items():
            yield f"{key.replace('_', ' ')}: {brief(value)}"


@dataclass(frozen=True, slots=True)
class Verdict(Answer):
    """Whether all is well: if not, the exit code is 1."""

    valid: bool

    @property
    def exit_code(self) -> int:
        """Return 1 if something is wrong."""
        return 0 if self.valid else 1


def show(answer: Answer, *, as_json: bool) -> None:
    """Print the answer for a program, or its text for a person."""
    has_answered.set(as_json)
    if as_json:
        print(json.dumps(json_of(answer), indent=2, allow_nan=False))
    else:
        print("\n".join(answer.lines()))


class AnsweringCommand(TyperCommand):
    """A command that takes `--json`, and whose result is printed."""

    def __init__(self, *args: Any, params: list[click.Parameter], **settings: Any) -> None:  # noqa: ANN401
        self._is_passed = any(each.name == "as_json" for each in params)
        option = TyperOption(
            param_decls=["--json", "as_json"], is_flag=True, default=False, help=JSON_HELP
        )
        own = [] if self._is_passed else [option]
        super().__init__(*args, params=[*params, *own], **settings)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command, print what it returns or yields, and end with its exit code."""
        as_json = ctx.params["as_json"]
        if not self._is_passed:
            del ctx.params["as_json"]
        found = super().invoke(ctx)
        code = 0
        for answer in found if isinstance(found, Iterator) else filter(None, [found]):
            show(answer, as_json=as_json)
            code = answer.exit_code
        if code:
            raise typer.Exit(code)


class Commands(typer.Typer):
    """Commands that answer."""

    def command(self, name: str | None = None, **settings: Any) -> Any:  # noqa: ANN401 - Typer's
        """Add a function as a command; see `AnsweringCommand`."""
        return super().command(name, **{"cls": AnsweringCommand, **settings})


def tabled(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of words under their column names."""
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    text = StringIO()
    Console(file=text, width=WIDTH, markup=False, emoji=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def short(value: object) -> str:
    """Return a cell: three digits of a float, "unknown" for None."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def brief(value: object) -> str:
    """Return a value on one line, of a long list the beginning."""
    if isinstance(value, list):
        more = f" and {len(value) - 12} more" if len(value) > 12 else ""
        return ("; ".join(map(str, value[:12])) or "none") + more
    counted = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if counted else "none" if value is None or value == "" else str(value)
