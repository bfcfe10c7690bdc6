"""Pictures of a run, round by round: accuracy, sizes, moves, risk; the look of all pictures."""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from covey.base.events import ClusterAudited, RiskMeasured, RiskUnknown
from covey.base.history import History
from covey.base.names import round_number
from covey.report.queries import OVERALL, finish_line, utility, utility_lines

INK = "#222222"
MISSING = "#999999"
GROUPS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's."""
CLUSTERS = ("#332288", "#44AA99", "#CC6677", "#DDCC77", "#882255", "#88CCEE", "#117733", "#AA4499")
"""Paul Tol's muted: other hues than the groups', which are not the clusters."""
MARKERS = "osD^vP*X"
WIDTH = 8.0
SCREEN = 100
"""Dots per inch in a notebook, which shows a dot as a pixel."""


class Picture(Figure):
    """A figure that a notebook shows, whether or not pyplot was ever imported."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=SCREEN)
        return buffer.getvalue()


def canvas(height: float = 3.6) -> tuple[Figure, Axes]:
    """Return a blank figure, 800 pixels wide at 100 per inch, and its only axes."""
    figure = Picture(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def quiet(axes: Axes, title: str, down: str, along: str) -> None:
    """Name the axes, and take away the ink that says nothing."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    axes.set_xlabel(along, fontsize=9.5, color=INK)
    axes.set_ylabel(down, fontsize=9.5, color=INK)
    axes.tick_params(labelsize=9, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MISSING)
    axes.grid(visible=True, axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def whole_rounds(axes: Axes, end: int) -> None:
    """Let the horizontal axis run from the first round, called 1, to the end of the run."""
    axes.set_xlim(-0.6, end + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))

    def label(t: float, _: float | int) -> str:
        return "end" if t == end else str(round_number(int(t)))

    axes.xaxis.set_major_formatter(FuncFormatter(label))


def legend(figure: Figure, handles: Sequence[Artist], columns: int = 4) -> None:
    """Put the legend below the axes, where no data are."""
    if handles:
        figure.legend(
            handles=list(handles),
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            fontsize=9,
            frameon=False,
            labelcolor=INK,
        )


def say(axes: Axes, sentence: str) -> None:
    """Write in grey why there is nothing to see."""
    axes.text(
        0.5,
        0.5,
        sentence,
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=10,
        color="#666666",
        wrap=True,
    )


def key(marker: str, label: str, colour: str, face: str | None = None) -> Line2D:
    """Return a legend's entry for a kind of point; `face` where it is not filled."""
    return Line2D(
        [],
        [],
        linestyle="",
        marker=marker,
        color=colour,
        markerfacecolor=face or colour,
        label=lettering(label),
    )


def lettering(text: str) -> str:
    """Return a name such that matplotlib neither reads it as a formula nor hides it."""
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def cycled(colours: Sequence[str], index: int) -> str:
    """Return the colour of the index-th thing; beyond the last they begin again."""
    return colours[index % len(colours)]


def png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes, sharp on dense screens, equal for equal figures."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=180, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """Return a figure as SVG bytes, equal for equal figures."""
    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "covey"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


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
            target, color=INK, linestyle="--", linewidth=1, zorder=1, label=f"target {target:g}"
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
        *axes.plot(t, largest, color=CLUSTERS[0], label="clients in the largest cluster"),
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


def risk_figure(history: History) -> Figure:
    """Draw each cluster's measured risk over the rounds, beside the truth at the end.

    Read off it which model is the exposed one, how sure the red team was (bars: one
    standard error either way), and whether it was right: diamonds on the right are the
    true audit. 0.5 is an attacker who tosses a coin. Hollow: not calibrated, nobody may
    act on it. A grey cross is a figure that was withheld; in grey rounds clients chose
    while some cluster had none.
    """
    figure = Picture(figsize=(8.0, 4.2), layout="constrained")
    seen, truth = figure.subplots(1, 2, sharey=True, width_ratios=[4.2, 1])
    quiet(seen, "Measured risk", "MIA accuracy", "round")
    quiet(truth, "True risk", "", "at the end")
    for axes in (seen, truth):
        axes.axhline(0.5, color=INK, linewidth=0.9, linestyle=":")
    whole_rounds(seen, finish_line(history))
    handles = _seen(seen, history)
    _truth(truth, history.audits)
    _room(seen, history)
    handles += _marks(seen, history)
    legend(figure, handles, 5)
    return figure


def _seen(axes: Axes, history: History) -> list[Artist]:
    if not history.measured:
        say(axes, "unknown: no red team has looked at this run")
        return []
    clusters = sorted({each.cluster for each in history.measured})
    if len(clusters) > MOST_CLUSTERS:
        return _many(axes, history.measured, len(clusters))
    return [
        _one(axes, [m for m in history.measured if m.cluster == j], len(clusters)) for j in clusters
    ]


def _one(axes: Axes, measured: Sequence[RiskMeasured], clusters: int) -> Artist:
    """Draw one cluster's figures, shifted a little so that bars do not cover others."""
    j = measured[0].cluster
    colour, marker = CLUSTERS[j % MOST_CLUSTERS], MARKERS[j % MOST_CLUSTERS]
    shift = 0.24 * (j - (clusters - 1) / 2)
    for each in measured:
        if each.risk is None:
            axes.plot(each.round_index + shift, 0.03 + 0.05 * j, "x", color=MISSING,
                      transform=axes.get_xaxis_transform())  # fmt: skip
            continue
        axes.errorbar(
            each.round_index + shift,
            each.risk,
            yerr=each.standard_error,
            fmt=marker,
            color=colour,
            markerfacecolor=colour if each.calibrated else "white",
            markersize=5.5,
            elinewidth=1.3,
        )
    known = [
        (m.round_index + shift, m.risk) for m in measured if m.risk is not None and m.calibrated
    ]
    axes.plot(
        [t for t, _ in known], [risk for _, risk in known], color=colour, linewidth=0.9, alpha=0.5
    )
    return Line2D([], [], color=colour, marker=marker, label=f"cluster {j}")


def _many(axes: Axes, measured: Sequence[RiskMeasured], clusters: int) -> list[Artist]:
    """Draw the spread over clusters instead of each: forty lines tell nothing."""
    rounds = sorted({m.round_index for m in measured})
    known = {
        t: [m.risk for m in measured if m.round_index == t and m.risk is not None] for t in rounds
    }
    told = [t for t in rounds if known[t]]
    for low, high, alpha in ((0, 100, 0.2), (25, 75, 0.35)):
        axes.vlines(
            told,
            [float(np.percentile(known[t], low)) for t in told],
            [float(np.percentile(known[t], high)) for t in told],
            color=CLUSTERS[0],
            linewidth=9,
            alpha=alpha,
        )
    median = [float(np.median(known[t])) for t in told]
    axes.plot(told, median, "o-", color=CLUSTERS[0], markersize=4, linewidth=1)
    for t in rounds:
        if withheld := sum(1 for m in measured if m.round_index == t) - len(known[t]):
            axes.text(t, 0.02, f"{withheld} withheld", transform=axes.get_xaxis_transform(),
                      ha="center", fontsize=8, color="#666666")  # fmt: skip
    if not told:
        say(axes, f"unknown: the figures of all {clusters} clusters were withheld")
        return []
    label = f"{clusters} clusters: median, middle half, range"
    return [Line2D([], [], color=CLUSTERS[0], marker="o", label=label)]


def _truth(axes: Axes, audits: Sequence[ClusterAudited]) -> None:
    if not audits:
        say(axes, "unknown:\nnot finished")
    many = len(audits) > MOST_CLUSTERS
    for audit in audits:
        j = audit.cluster
        colour = CLUSTERS[0] if many else CLUSTERS[j % MOST_CLUSTERS]
        if audit.true_risk is None:
            axes.plot(j, 0.03, "x", color=MISSING, transform=axes.get_xaxis_transform())
            continue
        axes.errorbar(
            j,
            audit.true_risk,
            yerr=audit.standard_error,
            fmt="D",
            color=colour,
            markeredgecolor=INK,
            markersize=3 if many else 7,
            elinewidth=0.5 if many else 1.3,
            alpha=0.6 if many else 1,
        )
    if audits:
        axes.set_xlim(-0.7, len(audits) - 0.3)
    axes.set_xticks([] if many else [audit.cluster for audit in audits])


def _room(axes: Axes, history: History) -> None:
    """Show 0.5 always, at least a tenth either way, and leave the foot to crosses."""
    pairs = [(m.risk, m.standard_error) for m in history.measured]
    pairs += [(a.true_risk, a.standard_error) for a in history.audits]
    known = [(risk, error or 0.0) for risk, error in pairs if risk is not None]
    low = min([0.45, *(risk - error for risk, error in known)])
    high = max([0.6, *(risk + error for risk, error in known)])
    axes.set_ylim(low - 0.12 * (high - low), high + 0.05 * (high - low))


def _marks(axes: Axes, history: History) -> list[Artist]:
    """Shade the rounds without a figure; return the legend of what else is drawn."""
    blind = [t for t, event in history.notable if isinstance(event, RiskUnknown)]
    for t in blind:
        axes.axvspan(t - 0.5, t + 0.5, color=MISSING, alpha=0.15, linewidth=0)
    handles: list[Artist] = []
    if history.audits:
        handles.append(key("D", "true risk at the end", INK, MISSING))
    if any(figure.risk is None for figure in history.measured) or any(
        audit.true_risk is None for audit in history.audits
    ):
        handles.append(key("x", "withheld", MISSING))
    if any(m.risk is not None and not m.calibrated for m in history.measured):
        handles.append(key("o", "not calibrated", INK, "white"))
    if blind:
        label = "clients chose without a figure"
        handles.append(Patch(color=MISSING, alpha=0.25, label=label))
    return handles
