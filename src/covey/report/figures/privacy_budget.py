"""What privacy costs: epsilon round by round, and what is left of the rest."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from covey.dp import epsilon_over_rounds
from covey.history import History
from covey.report.figures.style import (
    CLUSTERS,
    MARKERS,
    Picture,
    canvas,
    cycled,
    key,
    legend,
    quiet,
    say,
)

__all__ = ["epsilon_figure", "spent_figure"]

POINTS = 10
"""Places at which the account is drawn; each takes a moment to add up."""

PANELS = {
    "accuracy": "Accuracy",
    "true_risk_minority": "True risk, smallest group",
    "violations": "Violations",
}


def spent_figure(history: History) -> Figure:
    """Draw epsilon after so many merges, for a client and for a record.

    Read off it how much each further round takes. Rounds that were rolled back count:
    what they released stays released.
    """
    figure, axes = canvas(3.2)
    quiet(axes, "Privacy spent", "epsilon", "merges")
    lines = epsilon_over_rounds(history, POINTS)
    drawn = {unit: points for unit, points in lines.items() if points}
    for place, points in enumerate(drawn.values()):
        colour = cycled(CLUSTERS, place)
        axes.plot(*zip((0, 0.0), *points, strict=True), color=colour, marker="o", ms=4)
    if not drawn:
        say(axes, "unknown: nothing is guaranteed")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    units = enumerate(drawn)
    legend(figure, [key("o", f"of a {u}", cycled(CLUSTERS, i)) for i, u in units], 2)
    return figure


def epsilon_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw accuracy, risk and violations against epsilon, one line per method and noise.

    Read off it what a smaller epsilon takes and gives. At the right edge: runs without
    noise, which have no epsilon at all. `rows` are those of `comparison`.
    """
    figure = Picture(figsize=(8.0, 3.6), layout="constrained")
    lines = _lines(rows)
    levels = sorted({_level(r["epsilon"]) for r in rows if r["epsilon"] is not None})
    edge = 4 * max(levels, default=1.0)
    for axes, (metric, title) in zip(
        figure.subplots(1, 3), PANELS.items(), strict=True
    ):
        quiet(axes, title, "", "epsilon")
        axes.set_xscale("log")
        axes.set_xticks([*levels, edge], [*(f"{e:g}" for e in levels), "none"])
        axes.set_xticks([], minor=True)
        axes.set_xlim(min([edge, *levels]) / 2, edge * 2)
        axes.margins(y=0.15)
        for place, own in enumerate(lines.values()):
            _draw(axes, place, own, metric, edge)
    looks = [(*_look(i), name) for i, name in enumerate(lines)]
    legend(figure, [key(marker, name, colour) for marker, colour, name in looks], 3)
    return figure


def _lines(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Gather runs that differ in how much noise there is; without any, with the rest."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        own = kinds.setdefault((row["method"], row["selection"]), [])
        if row["noise"] and row["noise"] not in own:
            own.append(row["noise"])
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        method, selection = row["method"], row["selection"]
        own = kinds[method, selection]
        noise = row["noise"] or (own[0] if len(own) == 1 else "none")
        name = f"{method} {selection}".strip() + f", noise {noise}"
        lines.setdefault(name, []).append(row)
    return lines


def _draw(
    axes: Axes, place: int, rows: Sequence[Mapping[str, Any]], metric: str, edge: float
) -> None:
    """Draw every run as a point, and a line through the means over seeds."""
    marker, colour = _look(place)
    by_level: dict[float, list[float]] = {}
    for row in rows:
        if row[metric] is not None:
            level = edge if row["epsilon"] is None else _level(row["epsilon"])
            by_level.setdefault(level, []).append(row[metric])
    for level, values in by_level.items():
        axes.plot([level] * len(values), values, marker, color=colour, markersize=5)
    means = [(level, fmean(values)) for level, values in sorted(by_level.items())]
    if means:
        axes.plot(*zip(*means, strict=True), color=colour, linewidth=1.2)


def _level(epsilon: float) -> float:
    """Return an epsilon to two digits: runs planned for the same one stand together."""
    return float(f"{epsilon:.2g}")


def _look(place: int) -> tuple[str, str]:
    return MARKERS[place % len(MARKERS)], cycled(CLUSTERS, place)
