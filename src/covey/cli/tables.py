"""Tables of plain text, for a person at a terminal."""

from collections.abc import Iterable, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["short", "tabled"]

WIDTH = 240
"""Characters: no cell wraps, whatever the terminal; the terminal itself may."""


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
