"""What accuracy costs in violations: several settings in one picture."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.components.built_ins import BASELINE
from covey.report.figures.style import (
    CLUSTERS,
    INK,
    MARKERS,
    MISSING,
    Picture,
    cycled,
    key,
    legend,
    quiet,
    say,
)

__all__ = ["front", "pareto_figure"]

PANELS = {"accuracy": "All clients", "minority_accuracy": "Smallest group"}


class _Point(NamedTuple):
    """A setting's place: mean over its seeds, and the deviations."""

    setting: str
    violations: float
    accuracy: float
    across: float
    up: float


def pareto_figure(means: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw accuracy against violations, one point per setting, as `means` gives them.

    Bars are one standard deviation over the seeds. Read off it which settings are worth
    having: filled, and on the line, the front. A hollow one has another beside it that is
    at least as accurate with no more violations. A setting may be on the front at the
    left and not at the right, where its minority pays.
    """
    columns = 2 if max((len(row["setting"]) for row in means), default=0) < 48 else 1
    rows = -(-len(means) // columns)
    figure = Picture(figsize=(8.0, 3.6 + 0.21 * rows), layout="constrained")
    for axes, (metric, title) in zip(
        figure.subplots(1, 2), PANELS.items(), strict=True
    ):
        down = "accuracy on unseen data" if metric == "accuracy" else ""
        quiet(axes, title, down, "violations")
        points = _points(means, metric)
        if points:
            _draw(axes, points, [row["setting"] for row in means])
        else:
            say(axes, "unknown: no setting has\nboth figures in every run")
    legend(figure, [_key(place, row) for place, row in enumerate(means)], columns)
    return figure


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other dominates, fewest violations first.

    A point (violations, accuracy) dominates another if it has no more violations and no
    less accuracy, and differs.
    """
    best: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if (
            not best
            or points[i][1] > points[best[-1]][1]
            or points[i] == points[best[-1]]
        ):
            best.append(i)
    return best


def _points(means: Sequence[Mapping[str, Any]], metric: str) -> list[_Point]:
    return [
        _Point(
            row["setting"],
            row["violations"]["mean"],
            row[metric]["mean"],
            row["violations"]["deviation"] or 0.0,
            row[metric]["deviation"] or 0.0,
        )
        for row in means
        if row["violations"]["mean"] is not None and row[metric]["mean"] is not None
    ]


def _draw(axes: Axes, points: Sequence[_Point], settings: Sequence[str]) -> None:
    best = [points[i] for i in front([(p.violations, p.accuracy) for p in points])]
    axes.plot(
        [point.violations for point in best],
        [point.accuracy for point in best],
        color=MISSING,
        linewidth=1.2,
        zorder=1,
    )
    for point in points:
        marker, colour = _look(settings.index(point.setting), point.setting)
        axes.errorbar(
            point.violations,
            point.accuracy,
            xerr=point.across,
            yerr=point.up,
            fmt=marker,
            color=colour,
            markerfacecolor=colour if point in best else "white",
            markersize=7,
            elinewidth=0.9,
        )
    axes.margins(0.12)


def _look(place: int, setting: str) -> tuple[str, str]:
    """Return a setting's marker and colour; FedAvg is black, as everywhere."""
    if setting.startswith(BASELINE):
        return MARKERS[0], INK
    markers = len(MARKERS) - 1
    return MARKERS[1 + place % markers], cycled(CLUSTERS, place)


def _key(place: int, row: Mapping[str, Any]) -> Artist:
    marker, colour = _look(place, row["setting"])
    return key(marker, row["setting"], colour)
