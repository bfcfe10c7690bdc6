"""What privacy costs: epsilon round by round, and what is left of the rest."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.history import History
from covey.privacy import spent_so_far
from covey.report.figures.style import (
    CLUSTERS,
    INK,
    MARKERS,
    MISSING,
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
    began = history.started
    lines = (
        spent_so_far(
            history.told, began.delta, secret=began.secrets == "os", points=POINTS
        )
        if began
        else {}
    )
    drawn = {unit: points for unit, points in lines.items() if points}
    for place, points in enumerate(drawn.values()):
        colour = cycled(CLUSTERS, place)
        axes.plot(*zip((0, 0.0), *points, strict=True), color=colour, marker="o", ms=4)
    if not drawn:
        say(axes, "unknown: nothing is guaranteed")
    axes.set_ylim(bottom=0)
    units = enumerate(drawn)
    legend(figure, [key("o", f"of a {u}", cycled(CLUSTERS, i)) for i, u in units], 2)
    return figure


def epsilon_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw accuracy, risk and violations against epsilon, one line per method.

    Read off it what a smaller epsilon takes and gives. Hollow, at the right edge: runs
    without noise, which have no epsilon at all. `rows` are those of `comparison`.
    """
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    methods = list(dict.fromkeys(f"{r['method']} {r['selection']}" for r in rows))
    known = [row["epsilon"] for row in rows if row["epsilon"] is not None]
    edge = 4 * max(known, default=1.0)
    for axes, (metric, title) in zip(
        figure.subplots(1, 3), PANELS.items(), strict=True
    ):
        quiet(axes, title, "", "epsilon")
        axes.set_xscale("log")
        axes.axvline(edge, color=MISSING, linewidth=0.8, linestyle=":")
        for place, method in enumerate(methods):
            own = [r for r in rows if f"{r['method']} {r['selection']}" == method]
            _draw(axes, place, own, metric, edge)
    legend(figure, [key(*_look(i, m)) for i, m in enumerate(methods)], 3)
    return figure


def _draw(
    axes: Axes, place: int, rows: Sequence[Mapping[str, Any]], metric: str, edge: float
) -> None:
    """Draw the mean over seeds at every epsilon, and every run as a point."""
    marker, _, colour = _look(place, rows[0]["method"])
    found = [(r["epsilon"], r[metric]) for r in rows if r[metric] is not None]
    noisy = sorted((e, value) for e, value in found if e is not None)
    bare = [value for e, value in found if e is None]
    axes.plot([edge] * len(bare), bare, marker, color=colour, mfc="white", ms=6)
    axes.plot(*zip(*noisy, strict=True), marker, color=colour, ms=5) if noisy else None
    levels = sorted({round(e, 2) for e, _ in noisy})
    means = [fmean([v for e, v in noisy if round(e, 2) == level]) for level in levels]
    axes.plot(levels, means, color=colour, linewidth=1.2)


def _look(place: int, method: str) -> tuple[str, str, str]:
    """Return a method's marker, name and colour; FedAvg is black, as everywhere."""
    if method.startswith("fedavg"):
        return MARKERS[0], method, INK
    return MARKERS[1 + place % (len(MARKERS) - 1)], method, cycled(CLUSTERS, place)
