"""How a run went: accuracy, sizes and moves, round by round."""

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from covey.history import History
from covey.report.figures.style import (
    CLUSTERS,
    GROUPS,
    INK,
    Picture,
    canvas,
    cycled,
    legend,
    lettering,
    quiet,
    say,
    whole_rounds,
)
from covey.report.queries import OVERALL, finish_line, utility, utility_lines

__all__ = ["accuracy_figure", "clusters_figure", "prices_figure"]

MOST_CLUSTERS = len(CLUSTERS)
WIDTHS = {OVERALL: 2.4}


def accuracy_figure(history: History, baseline: History | None = None) -> Figure:
    """Draw accuracy, or squared error, on unseen data per round, overall and by group.

    Read off it whether a group is left behind while the mean does well, and whether
    personalisation helps at all: dashed is FedAvg, one model for everybody. The legend
    has the values at the end.
    """
    figure, axes = canvas(4.0)
    name = utility(history).name
    quiet(axes, f"{name.capitalize()} on unseen data", name, "round")
    handles = _accuracies(axes, history, "", "-")
    if baseline is not None:
        handles += _accuracies(axes, baseline, "FedAvg, ", "--")
    if not handles:
        say(axes, "unknown: nothing has been measured yet")
    whole_rounds(axes, finish_line(history))
    rows = max(1, len(handles) // (1 if baseline is None else 2))
    legend(figure, _interleaved(handles, rows), min(rows, 4))
    return figure


def clusters_figure(history: History) -> Figure:
    """Draw how many clients sit in each cluster, and how many moved, per round.

    Read off it whether the clusters settle, keep flapping, or collapse into one. Grey
    are rounds of a warm start: nobody is in a cluster, everybody shares one model.
    """
    figure = Picture(figsize=(8.0, 4.6), layout="constrained")
    sizes, moves = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
    quiet(sizes, "Clients per cluster", "clients", "")
    quiet(moves, "Clients that moved", "clients", "round")
    moves.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if history.rounds:
        handles = _sizes(sizes, history)
        _moves(moves, history)
        legend(figure, handles, 5)
    else:
        say(sizes, "no round has been played yet")
    whole_rounds(moves, finish_line(history))
    return figure


def prices_figure(history: History) -> Figure:
    """Draw each cluster's subsidy, and the share of clients that want it, per round.

    Read off it what it takes to keep a cluster: its price rises while fewer clients
    want it than it should keep (dashed), and falls to 0 where enough want it anyway.
    Bold is the share that it has, pale the share that wants it.
    """
    figure = Picture(figsize=(8.0, 4.6), layout="constrained")
    prices, shares = figure.subplots(2, 1, sharex=True)
    quiet(prices, "Subsidy of each cluster", "cost units", "")
    quiet(shares, "Share of the clients", "in it; pale: wanting it", "round")
    handles: list[Artist] = []
    if history.prices:
        handles = _prices(prices, shares, history)
    else:
        say(prices, "no prices have been set")
    whole_rounds(shares, finish_line(history))
    prices.set_ylim(bottom=0)
    shares.set_ylim(0, 1)
    legend(figure, handles, 5)
    return figure


def _prices(prices: Axes, shares: Axes, history: History) -> list[Artist]:
    t = [round_index for round_index, _ in history.prices]
    handles: list[Artist] = []
    for j in range(len(history.prices[0][1].prices)):
        colour = cycled(CLUSTERS, j)
        (line,) = prices.plot(
            t, [fact.prices[j] for _, fact in history.prices], color=colour,
            marker=".", label=f"cluster {j}",
        )  # fmt: skip
        wished = [fact.wished[j] for _, fact in history.prices]
        shares.plot(t, wished, color=colour, alpha=0.35, marker=".")
        sizes = [(row.round_index, row.clients) for row in history.rounds]
        shares.plot(
            [at for at, _ in sizes],
            [clients[j] / max(1, sum(clients)) for _, clients in sizes],
            color=colour,
            linewidth=2,
        )
        handles.append(line)
    target = history.prices[0][1].target_share
    handles.append(
        shares.axhline(
            target,
            color=INK,
            linestyle="--",
            linewidth=1,
            zorder=1,
            label=f"target {target:g}",
        )
    )
    return handles


def _accuracies(axes: Axes, history: History, prefix: str, dash: str) -> list[Artist]:
    handles: list[Artist] = []
    for index, (name, points) in enumerate(utility_lines(history).items()):
        if not points:
            continue
        (line,) = axes.plot(
            [t for t, _ in points],
            [value for _, value in points],
            dash,
            color=INK if name == OVERALL else cycled(GROUPS, index - 1),
            linewidth=WIDTHS.get(name, 1.6) - (0.4 if prefix else 0),
            alpha=0.75 if prefix else 1,
            marker="." if len(points) < 12 else None,
            label=lettering(f"{prefix}{name} {points[-1][1]:.3f}"),
        )
        handles.append(line)
    return handles


def _interleaved(handles: list[Artist], rows: int) -> list[Artist]:
    """Order the entries so that a legend, filled by column, pairs run and baseline."""
    return [handle for i in range(rows) for handle in handles[i::rows]]


def _sizes(axes: Axes, history: History) -> list[Artist]:
    if len(history.rounds[0].clients) > MOST_CLUSTERS:
        return _many_sizes(axes, history)
    rows, edges = history.rounds, _edges(history)
    layers = [
        ([row.clients[j] for row in rows], f"cluster {j}", CLUSTERS[j])
        for j in range(len(rows[0].clients))
    ]
    shared = [0 if any(row.clients) else row.participants for row in rows]
    if any(shared):
        layers.insert(0, (shared, "no clusters yet, one shared model", "#c4c4c4"))
    below = [0] * len(rows)
    handles: list[Artist] = []
    for sizes, name, colour in layers:
        top = [low + size for low, size in zip(below, sizes, strict=True)]
        axes.stairs(top, edges, baseline=below, fill=True, color=colour, alpha=0.85)
        handles.append(Patch(color=colour, alpha=0.85, label=name))
        below = top
    return handles


def _many_sizes(axes: Axes, history: History) -> list[Artist]:
    """Draw the largest cluster and the number in use: forty layers tell nothing."""
    number = len(history.rounds[0].clients)
    axes.set_title(
        f"Clients per cluster: {number} clusters, summarised",
        loc="left",
        fontsize=11,
        color=INK,
        fontweight="bold",
    )
    t = [row.round_index for row in history.rounds]
    largest = [max(row.clients) for row in history.rounds]
    used = [sum(1 for size in row.clients if size) for row in history.rounds]
    lines = [
        *axes.plot(
            t, largest, color=CLUSTERS[0], label="clients in the largest cluster"
        ),
        *axes.plot(t, used, color=CLUSTERS[1], label="clusters in use"),
    ]
    axes.set_ylim(bottom=0)
    return list[Artist](lines)


def _moves(axes: Axes, history: History) -> None:
    moved = [row.moved for row in history.rounds]
    axes.stairs(moved, _edges(history), fill=True, color=INK)
    axes.set_ylim(0, max(1, *moved) * 1.1)


def _edges(history: History) -> list[float]:
    first = history.rounds[0].round_index
    return [first + k - 0.5 for k in range(len(history.rounds) + 1)]
