"""How an answer is printed: one JSON object, or lines of text.

A command returns one frozen dataclass, or yields it and goes on; `fail_if` ends it with an
exit code. The fields are the keys of the JSON object, and the return type is what the site
makes the command's JSON schema from. The text follows from the fields as well, unless the
class has one of its own: an `Answer` in its `lines`, a class of another room in a function
under `text_of`.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from covey.base.as_json import facts_of, json_of

FAILED_CHECK, BAD_INPUT = 1, 2
"""Exit codes: a check failed; it cannot be done as requested."""

BAD = "bold red"
STYLES = {
    **dict.fromkeys(("damaged", "unreadable", "overdue", "FAILED", "error"), BAD),
    **dict.fromkeys(("waiting", "warning", "missing"), "yellow"),
}
"""Colours on a terminal, by what stands in a cell."""
MOST = 12
"""Entries of a list that a line shows."""
LONG = 30
"""Letters of a text that has a line of its own in a list."""

wants_json: ContextVar[bool] = ContextVar("wants_json", default=False)
"""Whether the command was called with `--json`."""
has_answered: ContextVar[bool] = ContextVar("has_answered", default=False)
"""Whether standard output has its one JSON object."""

Line = str | Text


@dataclass(frozen=True, slots=True)
class CommandResult:
    """An answer of the command line alone, with a text of its own."""

    def lines(self) -> Iterator[Line]:
        """Yield the text for a person."""
        return _usual_lines(self)


TextOf = Callable[[Any], Iterator[Line]]
TEXTS: dict[str, TextOf] = {}
"""Texts of classes of other rooms, by `module.Class`: they are imported by who makes them."""


def text_of(name: str) -> Callable[[TextOf], TextOf]:
    """Let a function return the text of a class that another room has."""

    def added(function: TextOf) -> TextOf:
        TEXTS[name] = function
        return function

    return added


def lines_of(answer: object) -> Iterator[Line]:
    """Return the text of an answer, line by line."""
    if isinstance(answer, CommandResult):
        return answer.lines()
    kind = type(answer)
    return TEXTS.get(f"{kind.__module__}.{kind.__name__}", _usual_lines)(answer)


def _usual_lines(answer: object) -> Iterator[Line]:
    """Yield a line per value, a table of values that are dataclasses, a list of sentences."""
    known = list(facts_of(answer))
    for key, value in known:
        name, many = key.replace("_", " "), value if isinstance(value, list | tuple) else ()
        if many and is_dataclass(many[0]):
            if len(known) > 1:
                yield f"{name}:"
            yield table_of(many)
        elif any(isinstance(item, str) and len(item) > LONG for item in many):
            yield f"{name}:"
            yield from (f"- {item}" for item in many)
        else:
            yield f"{name}: {short(value)}"


def table_of(rows: Sequence[object], *left_out: str) -> Text:
    """Return dataclasses or mappings as a table, without columns in which nothing stands."""
    held = [dict(facts_of(row, optional=False)) for row in rows]
    columns = [
        key
        for key in dict.fromkeys(key for row in held for key in row)
        if key not in left_out and any(row.get(key) not in (None, "", (), []) for row in held)
    ]
    heads = [key.replace("_", " ") for key in columns]
    return tabled(heads, ([short(row.get(key, "-")) for key in columns] for row in held))


def tabled(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Text:
    """Return rows of words under their column names; no cell wraps."""
    table = [list(heads), *map(list, rows)]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    lines: list[Text] = []
    for index, row in enumerate(table):
        line = Text()
        for cell, width in zip(row, widths, strict=True):
            line.append(cell, "bold" if index == 0 else STYLES.get(cell, ""))
            line.append(" " * (width - cell_len(cell) + 2))
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def short(value: object) -> str:
    """Return a value on one line: three digits of a float, of a long list the start."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) >= 0.001 or not value else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        more = f" and {len(value) - MOST} more" if len(value) > MOST else ""
        return "; ".join(map(short, value[:MOST])) + more or "none"
    if isinstance(value, Mapping) or is_dataclass(value):
        held = json_of(value)
        return ", ".join(f"{key} {short(value)}" for key, value in held.items()) or "none"
    return str(value) or "none"


def show(answer: object) -> None:
    """Print an answer: for a program with `--json`, else as text, with colours on a terminal."""
    if wants_json.get():
        has_answered.set(True)
        print(json.dumps(json_of(answer), indent=2, allow_nan=False))
        return
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    for line in lines_of(answer):
        if sys.stdout.isatty():
            console.print(line)
        else:
            print(line)


def fail_if(wrong: int) -> None:
    """End the command if something is wrong, with this exit code."""
    if wrong:
        raise click.exceptions.Exit(int(wrong))
