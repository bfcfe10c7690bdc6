"""A record as a figure, a table and a page."""

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.base.files import replace_whole
from covey.report.figures import GROUPS, INK, MARKERS, cycled, key, label_axes, legend
from covey.report.page import rendered
from covey_papers.reproduce.record import Cell, ExperimentRecord

MOST_PANELS = 6
ACROSS = 2
ROW = 0.27
"""Inches that a row takes."""
TITLE = 1.0
WIDEST = 34
"""Letters of a panel's title in a line."""
SPREAD = 0.5
"""Of a row's height, over which the columns of data stand."""
DASHES = ("--", ":", "-.")
PRINTED: dict[str, Any] = {"marker": "D", "color": INK, "markerfacecolor": "white"}


HEADS = (
    *("measure", "row", "column", "printed", "printed_deviation", "where"),
    *("mean", "low", "high", "values", "verdict"),
)

PAGE = "reproduction.html"


def drawn(record: ExperimentRecord) -> Figure:
    """Draw lines, or a panel per measure with a line per row, named at the left.

    A large point is the mean over the repeats, the bar its 95% interval, small points
    are the repeats: where no mean is known they stand alone. A white diamond is what the
    paper prints. Columns of data differ in colour and shape. The dashed line is the first
    row's mean in the first column. An interval that is longer than the points are apart is
    cut at the panel's edge. The first measures that are known get a panel, and one must be;
    the table has them all.
    """
    if record.figure == "lines":
        return _lines(record)
    cells = [cell for cell in record.findings.cells if cell.known]
    measures = list(dict.fromkeys(cell.measure for cell in cells))[:MOST_PANELS]
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    down = -(-len(measures) // ACROSS)
    height = down * (TITLE + ROW * len(rows) * max(1.0, len(columns) / 2))
    figure = Figure(figsize=(9.5, height), layout="constrained")
    grid = figure.subplots(down, ACROSS, squeeze=False, sharey=True).ravel()
    for axes, measure in zip(grid, measures, strict=False):
        label_axes(axes, "\n".join(wrap(measure, WIDEST)), "", "")
        axes.grid(visible=True, axis="x", color="#e6e6e6", linewidth=0.8)
        own = [cell for cell in cells if cell.measure == measure]
        _draw(axes, own, rows, columns)
    for axes in grid[len(measures) :]:
        axes.set_axis_off()
    grid[0].set_yticks(range(len(rows)), rows)
    grid[0].set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    keys = [key(cycled(MARKERS, i), c, cycled(GROUPS, i + 1)) for i, c in enumerate(columns)]
    if any(cell.printed for cell in cells):
        keys.append(key("D", "the paper", INK, "white"))
    legend(figure, keys if len(keys) > 1 else [])
    return figure


def _draw(axes: Axes, cells: Sequence[Cell], rows: Sequence[str], columns: Sequence[str]) -> None:
    first = cells[0]
    if first.mean is not None:
        axes.axvline(first.mean, color=INK, linewidth=0.8, linestyle="--")
    seen = [value for cell in cells for value in cell.known]
    seen += [cell.printed.value for cell in cells if cell.printed]
    room = 0.15 * (max(seen) - min(seen)) or 0.05
    for cell in cells:
        place = columns.index(cell.column)
        y = rows.index(cell.row) + SPREAD * ((place + 0.5) / len(columns) - 0.5)
        colour = cycled(GROUPS, place + 1)
        axes.plot(cell.known, [y] * len(cell.known), ".", color=colour, markersize=4)
        if cell.interval:
            axes.plot(cell.interval, [y, y], color=colour, linewidth=1.6)
        if cell.mean is not None:
            axes.plot(cell.mean, y, cycled(MARKERS, place), color=colour, markersize=7)
        if cell.printed:
            axes.plot(cell.printed.value, y, **PRINTED)
    axes.set_xlim(min(seen) - room, max(seen) + room)
    axes.locator_params(axis="x", nbins=5)  # or labels of a narrow range overlap


def _lines(record: ExperimentRecord) -> Figure:
    """Draw lines, a panel per column; those of a theorem are black and dashed."""
    lines = record.findings.lines
    panels = list(dict.fromkeys(line.panel for line in lines))
    figure = Figure(figsize=(9.0, 2.9 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    names = list(dict.fromkeys(line.name for line in lines))
    for axes, panel in zip(grid, panels, strict=True):
        along, up = record.axes
        label_axes(axes, panel, up, along)
        bounds = iter(DASHES)
        for line in lines:
            if line.panel == panel:
                axes.plot(
                    *zip(*line.points, strict=True),
                    next(bounds) if line.bound else "-",
                    color=INK if line.bound else cycled(GROUPS, names.index(line.name)),
                    label=line.name,
                    marker="." if len(line.points) < 30 and not line.bound else None,
                )
        axes.legend(fontsize=8, frameon=False)
    return figure


@dataclass(frozen=True, slots=True)
class RowInWords:
    """A figure beside the paper's, as its table shows it."""

    measure: str
    row: str
    column: str
    paper: str
    covey: str
    interval: str
    verdict: str


def words(cell: Cell) -> RowInWords:
    """Return a cell as a row of its table."""
    printed = cell.printed
    paper = "-" if printed is None else _short(printed.value)
    if printed and printed.deviation is not None:
        paper += f" ± {_short(printed.deviation)}"
    return RowInWords(
        measure=cell.measure,
        row=cell.row,
        column=cell.column,
        paper=paper,
        covey="unknown" if cell.mean is None else _short(cell.mean),
        interval="-" if cell.interval is None else " to ".join(map(_short, cell.interval)),
        verdict=cell.verdict,
    )


def as_csv(record: ExperimentRecord) -> str:
    """Return every cell as a line, with all its values."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    for cell in record.findings.cells:
        named = cell.measure, cell.row, cell.column
        printed = astuple(cell.printed) if cell.printed else (None, None, None)
        values = " ".join("unknown" if v is None else f"{v:.6g}" for v in cell.values)
        interval = cell.interval or (None, None)
        writer.writerow([*named, *printed, cell.mean, *interval, values, cell.verdict])
    return text.getvalue()


def printed_first(cells: Sequence[Cell]) -> tuple[Sequence[Cell], Sequence[Cell]]:
    """Return the cells that stand beside a paper's number, or a verdict, and the others.

    Where there are none of the first kind, all stand there.
    """
    first = [cell for cell in cells if cell.printed or cell.says]
    others = [cell for cell in cells if not (cell.printed or cell.says)]
    return (first, others) if first else (others, ())


def _row(cell: Cell) -> tuple[tuple[str, ...], bool]:
    """Return a row of the page, and whether its figure is known."""
    return astuple(words(cell)), cell.mean is not None


def _short(value: float) -> str:
    """Return three decimals, of large numbers fewer, of small ones as many as matter."""
    if value and abs(value) < 0.0005:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def write_page(records: Sequence[ExperimentRecord], out: Path) -> Path:
    """Write `reproduction.html`, which needs nothing beside it and no network.

    Columns that were not played stand above an experiment's rows, by reason. What the paper
    does not print is folded, where it prints anything.
    """
    places = {record.stem: out / "figures" / f"{record.stem}.svg" for record in records}
    pictures = {stem: place.read_bytes() for stem, place in places.items() if place.is_file()}
    sections = [
        {
            "record": record,
            "rows": [_row(cell) for cell in first if cell.values],
            "folded": [_row(cell) for cell in others if cell.values],
            "reasons": list(dict.fromkeys(c.reason for c in (*first, *others) if not c.values)),
            "minutes": record.findings.seconds / 60,
        }
        for record in records
        for first, others in [printed_first(record.findings.cells)]
    ]
    page = rendered(PAGE, pictures, {"sections": sections}, "covey_papers.reproduce")
    replace_whole(out / PAGE, page)
    return out / PAGE
