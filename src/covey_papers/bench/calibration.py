"""What red teams say against the truth: does a figure mean what it says?"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.report.figures import (
    GROUPS,
    INK,
    MARKERS,
    MISSING,
    cycled,
    key,
    legend,
    quiet,
    say,
)
from covey_papers.bench.criteria import NEAR
from covey_papers.bench.measure import SOURCES, Row

__all__ = ["calibration_figure"]


def calibration_figure(rows: Sequence[Row]) -> Figure:
    """Draw every estimate against the true risk, a panel per source, a colour per set.

    On the diagonal an estimate is right, in the grey band it is within 0.03. Bars are
    one standard error either way, of both. Hollow: extrapolated, nobody may act on it.
    """
    figure = Figure(figsize=(9.0, 5.5), layout="constrained")
    panels = figure.subplots(1, len(SOURCES), sharex=True, sharey=True)
    low, high = _range(rows)
    names = list(dict.fromkeys(row.set_name for row in rows))
    for axes, source in zip(panels, SOURCES, strict=True):
        quiet(
            axes, source, "measured risk" if source == SOURCES[0] else "", "true risk"
        )
        axes.fill_between(
            [low, high], [low - NEAR, high - NEAR], [low + NEAR, high + NEAR],
            color=MISSING, alpha=0.15, linewidth=0,
        )  # fmt: skip
        axes.plot([low, high], [low, high], color=INK, linewidth=0.9, linestyle=":")
        _points(axes, rows, source, names)
        axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    entries = [
        key(cycled(MARKERS, index), name, cycled(GROUPS, index))
        for index, name in enumerate(names)
    ]
    if any(_is_hollow(row, source) for row in rows for source in SOURCES):
        entries.append(key("o", "extrapolated", INK, "white"))
    legend(figure, entries)
    return figure


def _points(axes: Axes, rows: Sequence[Row], source: str, names: Sequence[str]) -> None:
    shown = [row for row in rows if row.told[source].risk is not None]
    if not shown:
        say(axes, "every figure was withheld")
    for row in shown:
        index, told = names.index(row.set_name), row.told[source]
        colour = cycled(GROUPS, index)
        axes.errorbar(
            row.truth,
            np.array([told.risk]),
            xerr=row.truth_error,
            yerr=told.standard_error,
            fmt=cycled(MARKERS, index),
            color=colour,
            markerfacecolor="white" if _is_hollow(row, source) else colour,
            markersize=5,
            elinewidth=0.7,
            alpha=0.8,
        )


def _is_hollow(row: Row, source: str) -> bool:
    told = row.told[source]
    return told.risk is not None and not told.calibrated


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    """Return what both axes show: 0.5 always, and every point with its bar."""
    told = [row.told[source] for row in rows for source in SOURCES]
    ends = [(each.risk, each.standard_error) for each in told]
    ends += [(row.truth, row.truth_error) for row in rows]
    known = [(risk, error or 0.0) for risk, error in ends if risk is not None]
    low = min([0.48, *(risk - error for risk, error in known)])
    high = max([0.6, *(risk + error for risk, error in known)])
    return low - 0.01, high + 0.01
