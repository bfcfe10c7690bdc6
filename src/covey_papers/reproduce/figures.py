"""A record as a figure, a table and a page."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from io import StringIO
from itertools import product
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from covey.base.files import replace_whole
from covey.report.figures import GROUPS, INK, MARKERS, cycled, key, legend, quiet
from covey.report.page import rendered
from covey_papers.reproduce.federations import MEASURES
from covey_papers.reproduce.record import Cell, Record

MOST_PANELS = 6
ACROSS = 2
ROW = 0.27
"""Inches that a row takes."""
TITLE = 1.0
WIDEST = 34
"""Letters of a panel's title in a line."""
SPREAD = 0.5
"""Of a row's height, over which the columns of data stand."""


def dot_figure(record: Record) -> Figure:
    """Draw a panel per measure; in it a line per row, named at the left.

    A large point is the mean over the repeats, the bar its 95% interval, small points
    are the repeats: where no mean is known they stand alone. Columns of data differ in
    colour and shape. The dashed line is the first row's mean in the first column. An
    interval that is longer than the points are apart is cut at the panel's edge.
    """
    cells = [cell for cell in record.found.cells if cell.known]
    measures = list(dict.fromkeys(cell.measure for cell in cells))[:MOST_PANELS]
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    down = -(-len(measures) // ACROSS)
    height = down * (TITLE + ROW * len(rows) * max(1.0, len(columns) / 2))
    figure = Figure(figsize=(9.5, height), layout="constrained")
    grid = figure.subplots(down, ACROSS, squeeze=False, sharey=True).ravel()
    for axes, measure in zip(grid, measures, strict=False):
        quiet(axes, "\n".join(wrap(measure, WIDEST)), "", "")
        axes.grid(visible=True, axis="x", color="#e6e6e6", linewidth=0.8)
        own = [cell for cell in cells if cell.measure == measure]
        _draw(axes, own, rows, columns)
    for axes in grid[len(measures) :]:
        axes.set_axis_off()
    grid[0].set_yticks(range(len(rows)), rows)
    grid[0].set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    if len(columns) > 1:
        named = enumerate(columns)
        legend(figure, [key(_marker(i), name, _colour(i)) for i, name in named])
    return figure


def _draw(axes: Axes, cells: Sequence[Cell], rows: Sequence[str], columns: Sequence[str]) -> None:
    first = cells[0]
    if first.mean is not None:
        axes.axvline(first.mean, color=INK, linewidth=0.8, linestyle="--")
    seen = [value for cell in cells for value in cell.known]
    room = 0.15 * (max(seen) - min(seen)) or 0.05
    for cell in cells:
        place = columns.index(cell.column)
        y = rows.index(cell.row) + SPREAD * ((place + 0.5) / len(columns) - 0.5)
        colour = _colour(place)
        axes.plot(cell.known, [y] * len(cell.known), ".", color=colour, markersize=4)
        if cell.interval:
            axes.plot(cell.interval, [y, y], color=colour, linewidth=1.6)
        if cell.mean is not None:
            axes.plot(cell.mean, y, _marker(place), color=colour, markersize=7)
    axes.set_xlim(min(seen) - room, max(seen) + room)


def _colour(place: int) -> str:
    return cycled(GROUPS, place + 1)


def _marker(place: int) -> str:
    return cycled(MARKERS, place)


MOST_FIGURE_PANELS = 4
DASHES = ("--", ":", "-.")
HATCHES = ("", "//", "..")
SIDES = ("minority", "majority")
FIGURE_ACROSS = ("accuracy", "mia")
LETTERS, NARROWEST = 100, 9
"""Of the names below a panel, all in one line, and of a name's lines at the least."""

WIDTH = 0.8
"""Of what stands at one place of the horizontal axis."""


def drawn(record: Record) -> Figure:
    """Draw bars or box plots, a panel per measure, or lines, a panel per column.

    A front is accuracy against risk, a panel per column and group. Dots are for many rows:
    each is named at its points.

    The first measures that are known get a panel, and one must be; the table has them all.
    Bars are means with their 95% intervals, points are the repeats; a white diamond is
    what the paper prints. In box plots it is the mean, as the papers have it.
    """
    if record.figure == "lines":
        return _lines(record)
    if record.figure == "front":
        return _front(record)
    if record.figure == "dots":
        return dot_figure(record)
    known = {cell.measure for cell in record.found.cells if cell.known}
    measures = [each for each in record.measures if each in known][:MOST_FIGURE_PANELS]
    figure, panels = _panels(len(measures), height=2.6)
    draw: Mapping[str, Callable[[Axes, Sequence[Cell], Sequence[str]], None]] = {
        "bars": _bars,
        "boxes": _boxes,
    }
    rows = _rows(record.found.cells)
    for axes, measure in zip(panels, measures, strict=True):
        cells = [cell for cell in record.found.cells if cell.measure == measure]
        quiet(axes, measure, "", "")
        draw[record.figure](axes, cells, rows)
    handles = [Patch(**_look(i), label=row) for i, row in enumerate(rows)]
    if any(cell.printed for cell in record.found.cells) and record.figure == "bars":
        legend(figure, [*handles, key("D", "the paper", INK, "white")])
    else:
        legend(figure, handles)
    return figure


def _panels(number: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure of axes below each other, so many inches high each."""
    figure = Figure(figsize=(9.0, height * number), layout="constrained")
    return figure, figure.subplots(number, 1, squeeze=False)[:, 0].tolist()


def _rows(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.row for cell in cells))


def _placed(
    axes: Axes, cells: Sequence[Cell], rows: Sequence[str]
) -> list[tuple[Cell, float, int]]:
    """Give every cell its place: columns along the axis, rows beside each other."""
    known = [cell for cell in cells if cell.known]
    columns = list(dict.fromkeys(cell.column for cell in known))
    width = max(NARROWEST, LETTERS // max(1, len(columns)))
    axes.set_xticks(range(len(columns)), [fill(name, width) for name in columns])
    step = WIDTH / len(rows)
    return [
        (
            cell,
            columns.index(cell.column) + (rows.index(cell.row) - (len(rows) - 1) / 2) * step,
            rows.index(cell.row),
        )
        for cell in known
    ]


def _look(row: int) -> dict[str, Any]:
    """Return how a row is filled: where colours begin again, they are hatched."""
    return {
        "facecolor": cycled(GROUPS, row),
        "hatch": HATCHES[row // len(GROUPS) % len(HATCHES)],
        "alpha": 0.55,
    }


def _bars(axes: Axes, cells: Sequence[Cell], rows: Sequence[str]) -> None:
    width = 0.9 * WIDTH / len(rows)
    for cell, x, row in _placed(axes, cells, rows):
        colour = cycled(GROUPS, row)
        if cell.mean is not None:
            axes.bar(x, cell.mean, width, **_look(row))
        axes.plot([x] * len(cell.known), cell.known, ".", color=colour, markersize=4)
        if cell.interval:
            axes.plot([x, x], cell.interval, color=INK, linewidth=1)
        if cell.printed:
            axes.plot(x, cell.printed.value, "D", color=INK, markerfacecolor="white")


def _boxes(axes: Axes, cells: Sequence[Cell], rows: Sequence[str]) -> None:
    width = 0.9 * WIDTH / len(rows)
    for cell, x, row in _placed(axes, cells, rows):
        axes.boxplot(
            [list(cell.known)],
            positions=[x],
            widths=width,
            manage_ticks=False,
            patch_artist=True,
            showmeans=True,
            boxprops=_look(row),
            medianprops={"color": "red"},
            meanprops={
                "marker": "D",
                "markerfacecolor": "white",
                "markeredgecolor": INK,
                "markersize": 4,
            },
        )


def _lines(record: Record) -> Figure:
    lines = record.found.lines
    panels = list(dict.fromkeys(line.panel for line in lines))
    figure, grid = _panels(len(panels), height=2.9)
    names = list(dict.fromkeys(line.name for line in lines))
    for axes, panel in zip(grid, panels, strict=True):
        along, up = record.axes
        quiet(axes, panel, up, along)
        bounds = iter(DASHES)
        for line in lines:
            if line.panel == panel:
                index = names.index(line.name)
                axes.plot(
                    [x for x, _ in line.points],
                    [y for _, y in line.points],
                    next(bounds) if line.bound else "-",
                    color=INK if line.bound else cycled(GROUPS, index),
                    label=line.name,
                    marker="." if len(line.points) < 30 and not line.bound else None,
                )
        axes.legend(fontsize=8, frameon=False)
    return figure


def _front(record: Record) -> Figure:
    """Draw a group's accuracy against its risk, a point per row: up and left is better.

    Means over the repeats; a row without one of the two figures has no point.
    """
    means = {(c.column, c.row, c.measure): c.mean for c in record.found.cells}
    columns = list(dict.fromkeys(column for column, _, _ in means))
    keys = {row: _shape(i, row) for i, row in enumerate(_rows(record.found.cells))}
    figure = Figure(figsize=(9.0, 1.0 + 3.0 * len(columns)), layout="constrained")
    grid = figure.subplots(len(columns), len(SIDES), squeeze=False)
    for (column, panels), (side, group) in product(
        zip(columns, grid, strict=True), enumerate(SIDES)
    ):
        quiet(panels[side], f"{column}: {group}", "accuracy", "MIA accuracy")
        up, along = (MEASURES[f"{what}_{group}"].title for what in FIGURE_ACROSS)
        for row, look in keys.items():
            place = means.get((column, row, along)), means.get((column, row, up))
            if None not in place:
                panels[side].plot(*place, marker=look.get_marker(), color=look.get_color())
    legend(figure, list(keys.values()), 3)
    return figure


def _shape(place: int, row: str) -> Line2D:
    """Return a row's key: where colours begin again, points have another shape."""
    marker = cycled(MARKERS, place // len(GROUPS))
    return key(marker, row, cycled(GROUPS, place))


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
        else _short(printed.value) + ("" if deviation is None else f" ± {_short(deviation)}"),
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
        writer.writerow(
            [
                cell.measure,
                cell.row,
                cell.column,
                *(astuple(cell.printed) if cell.printed else (None, None, None)),
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


def _whole(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _short(value: float) -> str:
    """Return three decimals, of large numbers fewer, of small ones as many as matter."""
    if value and abs(value) < 0.0005:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


PAGE = "reproduction.html"


def write_page(records: Sequence[Record], out: Path) -> Path:
    """Write `reproduction.html`, which needs nothing beside it and no network."""
    places = {each.stem: out / "figures" / f"{each.stem}.svg" for each in records}
    pictures = {stem: place.read_bytes() for stem, place in places.items() if place.is_file()}
    content = {"sections": [_section(each) for each in records]}
    page = rendered(PAGE, pictures, content, "covey_papers.reproduce")
    replace_whole(out / PAGE, page)
    return out / PAGE


def _section(record: Record) -> dict[str, Any]:
    """Return a record with its rows; columns not played stand above them by reason."""
    cells = record.found.cells
    return {
        "record": record,
        "rows": [(words(cell), cell.mean is not None) for cell in cells if cell.values],
        "reasons": list(dict.fromkeys(c.reason for c in cells if not c.values)),
        "minutes": record.found.seconds / 60,
    }
