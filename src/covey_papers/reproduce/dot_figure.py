"""Many rows beside each other: each has its name at its points, and its interval."""

from collections.abc import Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.report.figures import GROUPS, INK, MARKERS, cycled, key, legend, quiet
from covey_papers.reproduce.record import Cell, Record

__all__ = ["dot_figure"]

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


def _draw(
    axes: Axes, cells: Sequence[Cell], rows: Sequence[str], columns: Sequence[str]
) -> None:
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
