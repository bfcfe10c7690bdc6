"""Heads that clusters could have had, where the risk decided which one they have."""

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.events import HeadChosen
from covey.history import History
from covey.report.figures.style import (
    CLUSTERS,
    INK,
    Picture,
    cycled,
    key,
    legend,
    quiet,
    say,
)
from covey.types import round_number

__all__ = ["heads_figure"]

COLUMNS = 2


def heads_figure(history: History) -> Figure:
    """Draw accuracy against risk of every head that was tried, cluster by cluster.

    Read off it what protection costs: a line is one pooling, from the least
    regularisation at the right to the most. The ring is the head that was taken: the most
    accurate one left of what clients accept (dashed), or the safest if there is none.
    Both are exact, on clients' records by heads that never met them.
    """
    tried = history.heads_chosen
    rows = max(1, -(-len(tried) // COLUMNS))
    figure = Picture(figsize=(8.0, 0.6 + 3.0 * rows), layout="constrained")
    panels: list[Axes] = [
        figure.add_subplot(rows, min(COLUMNS, max(1, len(tried))), place + 1)
        for place in range(max(1, len(tried)))
    ]
    if not tried:
        quiet(panels[0], "Heads", "accuracy", "risk")
        say(panels[0], "no head was chosen by risk")
        return figure
    handles: dict[float, Artist] = {}
    for axes, (cluster, (t, chosen)) in zip(panels, sorted(tried.items()), strict=True):
        title = f"Cluster {cluster}, round {round_number(t)}"
        quiet(axes, title, "accuracy, left out", "risk")
        handles |= _lines(axes, chosen)
    taken = key("o", "taken", INK, "none")
    accepted = key("", "accepted by all but a quarter", INK)
    accepted.set_linestyle("--")
    legend(figure, [*handles.values(), taken, accepted], 3)
    return figure


def _lines(axes: Axes, chosen: HeadChosen) -> dict[float, Artist]:
    handles: dict[float, Artist] = {}
    for place, pooling in enumerate(dict.fromkeys(p[0] for p in chosen.front)):
        points = [p for p in chosen.front if p[0] == pooling]
        (handles[pooling],) = axes.plot(
            [p[2] for p in points], [p[3] for p in points], marker=".",
            color=cycled(CLUSTERS, place), label=f"pooling {pooling:g}",
        )  # fmt: skip
    _, _, risk, accuracy = chosen.front[chosen.chosen]
    axes.plot(
        risk, accuracy, "o", markersize=11, markerfacecolor="none", markeredgecolor=INK
    )
    axes.axvline(chosen.accepted, color=INK, linestyle="--", linewidth=1, zorder=1)
    return handles
