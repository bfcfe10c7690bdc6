"""A record as a table: what the paper prints, what covey measures, and why they differ."""

import csv
from collections.abc import Sequence
from io import StringIO

from covey_papers.reproduce.record import Cell, Record

__all__ = ["COLUMNS", "as_csv", "words"]

COLUMNS = ("measure", "row", "column", "paper", "covey", "95% interval", "verdict")


def words(cell: Cell) -> tuple[str, ...]:
    """Return a cell as a line of `COLUMNS`."""
    printed = cell.printed
    deviation = printed.deviation if printed else None
    return (
        cell.measure,
        cell.row,
        cell.column,
        "-"
        if printed is None
        else _short(printed.value)
        + ("" if deviation is None else f" ± {_short(deviation)}"),
        "unknown" if cell.mean is None else _short(cell.mean),
        "-" if cell.interval is None else " to ".join(map(_short, cell.interval)),
        cell.verdict,
    )


def as_csv(record: Record) -> str:
    """Return every cell as a line, with all its values."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    for cell in record.found.cells:
        printed = cell.printed
        writer.writerow(
            [
                cell.measure,
                cell.row,
                cell.column,
                *(
                    [printed.value, printed.deviation, printed.where]
                    if printed
                    else BLANK
                ),
                cell.mean,
                *(cell.interval or (None, None)),
                " ".join(map(_whole, cell.values)),
                cell.verdict,
            ]
        )
    return text.getvalue()


HEADS = (
    *("measure", "row", "column", "printed", "printed_deviation", "where"),
    *("mean", "low", "high", "values", "verdict"),
)
BLANK: Sequence[None] = (None, None, None)


def _whole(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _short(value: float) -> str:
    """Return three decimals, of large numbers fewer, of small ones as many as tell."""
    if value and abs(value) < 0.0005:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"
