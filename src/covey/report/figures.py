"""Pictures of one run, for its report, notebooks and the browser; the look of all pictures."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from textwrap import fill
from threading import Lock
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy import ndarray
from torch import Tensor

from covey.base.events import RiskUnknown
from covey.base.figure import RiskEstimate
from covey.base.history import History
from covey.base.names import round_number
from covey.dp.status import epsilon_over_rounds
from covey.report.clients import attacks_on_models, client_summaries, strongest
from covey.report.queries import OVERALL, finish_line, group_sizes, utility, utility_lines
from covey.report.summary import summary, violations

INK, GREY, MISSING = "#222222", "#5c5c5c", "#999999"
GROUPS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of groups of clients, on every picture: Okabe and Ito's."""
CLUSTERS = ("#332288", "#44AA99", "#CC6677", "#DDCC77", "#882255", "#88CCEE", "#117733", "#AA4499")
"""Colours of clusters, on every picture: Paul Tol's muted. More clusters are summarised."""
SETTINGS = ("#4477AA", "#EE6677", "#228833", "#B8860B", "#66CCEE", "#AA3377")
"""Colours of runs, settings and attacks, which are neither: after Paul Tol's bright."""
MARKERS = "osD^vP*X"
WIDTH, HEIGHT = 6.0, 3.6
"""In inches without the legend: narrow enough for letters that can be read on a phone."""


MOST_CLASSES = 12
"""Classes whose counts are legible in their cells."""

MOST_SAMPLES = 8


class Picture(Figure):
    """A figure that a notebook shows, whether or not pyplot was ever imported."""

    def _repr_svg_(self) -> str:
        return svg(self).decode()


def canvas(
    *panels: tuple[str, str, str], height: float = HEIGHT, **grid: object
) -> tuple[Figure, list[Axes]]:
    """Return a blank figure and its axes, row by row.

    Args:
        *panels: the title of each, and what its vertical and horizontal axis is called.
        height: in inches.
        **grid: how panels stand, as of `Figure.subplots`; else one above the other.
    """
    figure = Picture(figsize=(WIDTH, height), layout="constrained")
    places: Any = {"nrows": len(panels) if "ncols" not in grid else 1, "squeeze": False, **grid}
    every: list[Axes] = list(figure.subplots(**places).flat)
    for axes, words in zip(every, panels, strict=True):
        label_axes(axes, *words)
    return figure, every


def label_axes(axes: Axes, title: str, down: str, along: str) -> None:
    """Name the axes, and take away the ink that says nothing."""
    axes.set_title(title, loc="left", fontsize=12, color=INK, fontweight="bold")
    axes.set_xlabel(along, fontsize=11, color=INK)
    axes.set_ylabel(down, fontsize=11, color=INK)
    axes.tick_params(labelsize=10, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MISSING)
    axes.grid(visible=True, axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def counted(axis: Any, ticks: int = 6) -> None:  # noqa: ANN401 - an axis of either direction
    """Let an axis of counts have whole numbers alone."""
    axis.set_major_locator(MaxNLocator(ticks, integer=True, min_n_ticks=1))


def whole_rounds(axes: Axes, end: int) -> None:
    """Let the horizontal axis run from the first round, called 1, to the end of the run."""
    axes.set_xlim(-0.6, end + 0.6)
    counted(axes.xaxis)

    def label(t: float, _: float | int) -> str:
        return "end" if t == end else str(round_number(int(t)))

    axes.xaxis.set_major_formatter(FuncFormatter(label))


def legend(figure: Figure, handles: Sequence[Artist] | None = None, columns: int = 3) -> None:
    """Put the legend below the axes, where no data are, in room of its own.

    Args:
        figure: the picture.
        handles: what is named; None: all that has a label.
        columns: how many stand side by side, filled one after the other.
    """
    if handles is None:
        labelled = (axes.get_legend_handles_labels()[0] for axes in figure.axes)
        handles = [handle for pair in labelled for handle in pair]
    if not handles:
        return
    labels = [fill(str(handle.get_label()), 60 // min(columns, len(handles))) for handle in handles]
    rows = -(-len(handles) // columns) * max(label.count("\n") + 1 for label in labels)
    figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    figure.legend(
        list(handles),
        labels,
        loc="outside lower center",
        ncols=min(columns, len(handles)),
        fontsize=10,
        frameon=False,
        labelcolor=INK,
    )


def say(axes: Axes, sentence: str) -> None:
    """Write in grey why there is nothing to see."""
    middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
    axes.text(0.5, 0.5, sentence, fontsize=11, color=GREY, wrap=True, **middle)


def key(marker: str, label: str, colour: str, face: str | None = None) -> Line2D:
    """Return a legend's entry for a kind of point; `face` where it is not filled."""
    look: dict[str, Any] = {"marker": marker, "color": colour, "markerfacecolor": face or colour}
    return Line2D([], [], linestyle="", label=lettering(label), **look)


def lettering(text: str) -> str:
    """Return a name such that matplotlib neither reads it as a formula nor hides it."""
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def cycled(colours: Sequence[str], index: int) -> str:
    """Return the colour of the index-th thing; beyond the last they begin again."""
    return colours[index % len(colours)]


_saving = Lock()
"""matplotlib has one set of parameters for all threads."""


def svg(figure: Figure) -> bytes:
    """Return a figure as SVG bytes, equal for equal figures; its words are text."""
    return saved(figure, "svg", Date=None)


def saved(figure: Figure, kind: str, **metadata: None) -> bytes:
    """Return a figure as the bytes of a file of this kind."""
    buffer = BytesIO()
    with _saving, rc_context({"svg.hashsalt": "covey", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, metadata=metadata, dpi=200)
    return buffer.getvalue()


def accuracy_figure(history: History, baseline: History | None = None) -> Figure:
    """Draw accuracy, or squared error, on unseen data per round, overall and by group.

    Read off it whether a group is left behind while the mean does well, and whether
    personalisation helps at all: dashed is FedAvg, one model for all clients. The legend
    has the values at the end.
    """
    name = utility(history).name
    figure, (axes,) = canvas((f"{name.capitalize()} on unseen data", name, "round"))
    runs = [(history, "", "-"), *([(baseline, "FedAvg, ", "--")] if baseline else [])]
    for shown, prefix, dash in runs:
        for index, (group, points) in enumerate(utility_lines(shown).items()):
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    dash,
                    color=INK if group == OVERALL else cycled(GROUPS, index - 1),
                    linewidth=2.4 if group == OVERALL else 1.6,
                    alpha=0.75 if prefix else 1,
                    marker="." if len(points) < 12 else None,
                    label=lettering(f"{prefix}{group} {points[-1][1]:.3f}"),
                )
    if not axes.lines:
        say(axes, "unknown: nothing has been measured yet")
    whole_rounds(axes, finish_line(history))
    legend(figure, columns=2 if baseline else 3)
    return figure


def clusters_figure(history: History) -> Figure:
    """Draw how many clients each cluster has, and how many moved, per round.

    Read off it whether the clusters become stable, keep changing, or collapse into one. Grey
    are rounds of a warm start: there are no clusters, and all share one model.
    """
    rows, number = history.rounds, len(history.rounds[0].clients) if history.rounds else 0
    is_many = number > len(CLUSTERS)
    figure, (sizes, moves) = canvas(
        (f"{number} clusters, summarised" if is_many else "Clients per cluster", "clients", ""),
        ("Clients that moved", "clients", "round"),
        height_ratios=(2.2, 1.0),
        sharex=True,
    )
    counted(sizes.yaxis)
    counted(moves.yaxis, 3)
    t = [row.round_index for row in rows]
    edges = [*(x - 0.5 for x in t), *(x + 0.5 for x in t[-1:])]
    if not rows:
        say(sizes, "no round has been played yet")
    elif is_many:
        sizes.plot(t, [max(row.clients) for row in rows], color=INK, label="in the largest")
        used = [sum(map(bool, row.clients)) for row in rows]
        sizes.plot(t, used, color=GREY, linestyle=":", label="clusters in use")
        sizes.set_ylim(bottom=0)
    else:
        shared = [0 if any(row.clients) else row.participants for row in rows]
        layers = [("no clusters yet: one shared model", "#c4c4c4", shared)] if any(shared) else []
        layers += [
            (f"cluster {j}", CLUSTERS[j], [row.clients[j] for row in rows]) for j in range(number)
        ]
        below = np.zeros(len(rows))
        for name, colour, layer in layers:
            look: dict[str, Any] = {"fill": True, "color": colour, "label": name}
            sizes.stairs(below + layer, edges, baseline=below, **look)
            below = below + layer
    if rows:
        moved = [row.moved for row in rows]
        moves.stairs(moved, edges, fill=True, color=INK)
        moves.set_ylim(0, max(1, *moved) * 1.1)
    whole_rounds(moves, finish_line(history))
    legend(figure)
    return figure


def risk_figure(history: History) -> Figure:
    """Draw each cluster's measured risk over the rounds, and the strongest attack at the end.

    Read off it which model is the exposed one, how sure the red team was (bars: one
    standard error either way), and whether it was right: diamonds on the right are the
    strongest attack that was run. At 0.5 an attacker guesses. Hollow: not calibrated, so
    that no report counts it. A grey cross is a figure that was withheld; in grey rounds clients
    chose while some cluster had none.
    """
    figure, (seen, truth) = canvas(
        ("Membership risk, measured", "membership risk", "round"),
        ("At the end", "", "cluster"),
        ncols=2,
        width_ratios=(3.4, 1.0),
        sharey=True,
    )
    blind = [t for t, event in history.notable if isinstance(event, RiskUnknown)]
    for t in blind:
        seen.axvspan(t - 0.5, t + 0.5, color=MISSING, alpha=0.15, linewidth=0)
    attacks, measured = attacks_on_models(history), history.measured
    ends = {audit.cluster: strongest(attacks[audit.cluster]) for audit in history.audits}
    clusters = sorted({*ends, *(fact.cluster for fact in measured)})
    is_many = len(clusters) > len(CLUSTERS)
    keys: list[Artist] = [key(".", f"{len(clusters)} clusters", GREY)] if is_many else []
    for place, j in enumerate(clusters):
        look: dict[str, Any] = {"color": GREY, "fmt": ".", "alpha": 0.5}
        shift, at_end = 0.0, look
        if not is_many:
            look = {"color": CLUSTERS[j], "fmt": cycled(MARKERS, j)}
            at_end = {**look, "fmt": "D", "markeredgecolor": INK}
            shift = 0.24 * (place - (len(clusters) - 1) / 2)  # bars side by side
            keys.append(key(look["fmt"], f"cluster {j}", look["color"]))
        own = [fact.estimate for fact in measured if fact.cluster == j]
        for calibrated in (True, False):
            shown = [
                estimate
                for estimate in own
                if estimate.is_known and estimate.calibrated == calibrated
            ]
            at, risks = [e.round_index + shift for e in shown], [e.risk for e in shown]
            errors, face = [e.standard_error for e in shown], look["color"]
            seen.errorbar(at, risks, errors, mfc=face if calibrated else "white", **look)
        if attack := ends.get(j):
            truth.errorbar(j, attack.risk, attack.standard_error, **at_end)
    for axes in (seen, truth):
        axes.axhline(0.5, color=INK, linewidth=0.9, linestyle=":")
    low, high = min(0.44, seen.get_ylim()[0]), max(0.6, seen.get_ylim()[1])
    seen.set_ylim(low - 0.08 * (high - low), high)  # crosses at the foot
    withheld = [e.estimate.round_index for e in measured if not e.estimate.is_known]
    unknown = [j for j, attack in ends.items() if attack is None]
    _crosses(seen, withheld)
    _crosses(truth, unknown)
    whole_rounds(seen, finish_line(history))
    counted(truth.xaxis)
    truth.xaxis.set_visible(bool(ends))
    truth.set_xlim(-0.7, max(ends, default=0) + 0.7)
    if not measured:
        say(seen, "unknown: no red team has looked at this run")
    if not ends:
        say(truth, "unknown:\nnot\nfinished")
    hollow = any(e.estimate.is_known and not e.estimate.calibrated for e in measured)
    others = (
        (ends, key("D", "strongest attack", INK, MISSING)),
        (withheld or unknown, key("x", "withheld", MISSING)),
        (hollow, key("o", "not calibrated", INK, "white")),
        (blind, Patch(color=MISSING, alpha=0.25, label="clients chose without a figure")),
    )
    legend(figure, [*keys, *(handle for is_there, handle in others if is_there)])
    return figure


def _crosses(axes: Axes, places: Sequence[float | int] | ndarray) -> None:
    """Mark at the foot of the axes what has no figure."""
    heights = [0.03] * len(places)
    axes.plot(places, heights, "x", color=MISSING, transform=axes.get_xaxis_transform())


def violations_figure(history: History) -> Figure:
    """Draw each client's threshold, in rising order, against its final model's risk.

    Read off it who is above what it accepts: filled points above the line. Bars are one
    standard error, so a point just above may be chance. A pale dash is the client's
    exposure where that is higher: the riskiest model that it ever trained, which it
    cannot take back by moving. A grey cross has no figure. Risks are of the strongest
    attack on each model, which the axis names; where it is a bound on all attacks, small
    diamonds are the strongest that was run.
    """
    attacks = " and ".join(violations(history).attacks)
    down = f"membership risk by {attacks}" if attacks else "membership risk"
    title = "Risk against what each client accepts"
    figure, (axes,) = canvas((title, down, "clients, most careful first"))
    axes.set_xticks([])
    summaries = client_summaries(history).values()
    clients = [(client.threshold, client) for client in summaries if client.threshold is not None]
    if not clients:
        unknown = "no threshold of a client is known"
        late = "it is measured at the end,\nand this run has not ended"
        say(axes, f"unknown: {unknown if history.exposures else late}")
        return figure
    clients.sort(key=lambda client: (client[0], client[1].handle))
    unknown = RiskEstimate.unknown("")
    tau, risk, error, exposure = np.array(
        [
            (
                tau,
                (client.risk or unknown).risk,
                (client.risk or unknown).standard_error,
                client.exposure,
            )
            for tau, client in clients
        ],
        dtype=float,
    ).T
    places, is_known = np.arange(len(tau)), ~np.isnan(risk)
    is_higher = exposure > np.nan_to_num(risk)
    axes.stairs(tau, np.arange(len(tau) + 1) - 0.5, baseline=None, color=INK, linewidth=1.4)
    axes.axhline(0.5, color=INK, linewidth=0.9, linestyle=":")
    axes.set_xlim(-1, len(clients))
    sizes = group_sizes(history)
    scale = max(0.2, min(1.0, 60 / len(clients)))  # else hundreds hide each other
    look: dict[str, Any] = {"fmt": "o", "elinewidth": 0.8 * scale}
    look |= {"markersize": 5 * scale**0.5, "markeredgewidth": scale**0.5}
    dash = {"alpha": 0.45, "markersize": 8 * scale, "markeredgewidth": 2}
    for index, group in enumerate([*sizes, None]):
        colour = cycled(GROUPS, index) if group else INK
        own = np.array([client.group == group for _, client in clients])
        for is_above, face in ((True, colour), (False, "white")):
            at = own & is_known & ((risk > tau) == is_above)
            bars = {"color": colour, "markerfacecolor": face, **look}
            axes.errorbar(places[at], risk[at], error[at], **bars)
        axes.plot(places[own & is_higher], exposure[own & is_higher], "_", color=colour, **dash)
    tried = [(i, client.attack.risk) for i, (_, client) in enumerate(clients) if client.attack]
    look = {"color": INK, "markersize": 2.5 * scale**0.5, "zorder": 4}
    axes.plot(*np.array(tried).reshape(-1, 2).T, "D", **look)  # inside of circles
    _crosses(axes, places[~is_known])
    others = (
        (tried, key("D", "strongest attack that was run", INK)),
        (is_higher.any(), key("_", "exposure, where higher", MISSING)),
        (not is_known.all(), key("x", "risk unknown", MISSING)),
    )
    keys = [
        Line2D([], [], color=INK, label="accepted at most"),
        *(key("o", group, cycled(GROUPS, index)) for index, group in enumerate(sizes)),
        key("o", "filled: above", INK),
        key("o", "hollow: accepted", INK, "white"),
        *(handle for is_there, handle in others if is_there),
    ]
    legend(figure, keys)
    return figure


def fairness_figure(history: History) -> Figure:
    """Draw each gap between groups: its mean over the classes, and its maximum.

    Read off it how differently the groups are treated, and whether chance does as much:
    p is the share of shuffled groups whose mean gap is at least as large. The maximum
    over many classes is well above 0 even without any disparity. The thick bar is the
    95% interval of the mean over resampled clients and test examples.
    """
    gaps = [(gap, gap.mean.value) for gap in history.fairness if gap.mean.value is not None]
    height = 1.5 + 0.6 * max(1, len(gaps))
    words = ("Gaps between groups", "", "difference of rates; 0 is equal")
    figure, (axes,) = canvas(words, height=height)
    axes.grid(visible=False)
    axes.set_yticks([])
    if not gaps:
        say(axes, "unknown: there are no groups to compare, or no figure yet")
        return figure
    for place, (gap, mean) in enumerate(gaps):
        most = mean if gap.maximum is None else gap.maximum
        axes.plot([mean, most], [place, place], color=INK, alpha=0.4)
        low, high = gap.mean.low, gap.mean.high
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=MISSING, linewidth=6, alpha=0.5)
        axes.plot(most, place, "o", color=INK, markerfacecolor="white")
        axes.plot(mean, place, "o", color=INK)
        name = gap.gap.replace("_", " ")
        if gap.p_value is not None:
            verdict = "more than chance" if gap.p_value < 0.05 else "no more than chance"
            name = f"{name}: {verdict} (p = {gap.p_value:.3f})"
        above = {"xytext": (2, 8), "textcoords": "offset points", "fontsize": 10, "color": INK}
        axes.annotate(name, (0, place), **above)
    axes.set_ylim(len(gaps) - 0.6, -0.8)
    axes.set_xlim(left=0)
    mean_key = key("o", "mean over the classes", INK)
    legend(figure, [mean_key, key("o", "maximum over the classes", INK, "white")])
    return figure


def spent_figure(history: History) -> Figure:
    """Draw epsilon after so many merges, for a client and for a record.

    Read off it how much each further round takes. Rounds that were rolled back count:
    what they released stays released.
    """
    figure, (axes,) = canvas(("Privacy spent", "epsilon", "aggregations"))
    lines = epsilon_over_rounds(history, 10)  # each point takes a moment to add up
    for index, (unit, points) in enumerate(lines.items()):
        if points:
            look: dict[str, Any] = {"color": SETTINGS[index], "marker": "o", "markersize": 4}
            axes.plot(*zip((0, 0.0), *points, strict=True), label=f"of a {unit}", **look)
    if not axes.lines:
        say(axes, "unknown: nothing is guaranteed")
    axes.set_ylim(bottom=0)
    counted(axes.xaxis)
    legend(figure)
    return figure


def confusion_figure(history: History) -> Figure:
    """Draw the confusion matrix of all clients' unseen examples, shaded by its rows' shares.

    Read off it which class is taken for which: every row is a true class.
    """
    figure, (axes,) = canvas(("Confusion of all clients", "true class", "predicted class"))
    counts = np.array(next(iter(summary(history).confusion.values()), ()))
    if not counts.size:
        say(axes, "unknown: it was not measured")
        return figure
    axes.grid(visible=False)
    shares = counts / counts.sum(axis=1, keepdims=True).clip(1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (true, taken), count in np.ndenumerate(counts if len(counts) <= MOST_CLASSES else ()):
        colour = "white" if shares[true, taken] > 0.5 else INK
        axes.text(taken, true, f"{count:,}", ha="center", va="center", color=colour, fontsize=8)
    counted(axes.xaxis, 10)
    counted(axes.yaxis, 10)
    return figure


def samples_figure(samples: Mapping[str, Tensor]) -> Figure:
    """Draw a row of images (uint8, n x c x h x w) of each group.

    Read off it what sets the groups apart, as a model would see it.
    """
    columns = min(MOST_SAMPLES, max((len(x) for x in samples.values()), default=1))
    rows = samples or {"": None}
    figure, grid = canvas(
        *((lettering(group), "", "") for group in rows), height=0.35 + 0.95 * len(rows)
    )
    for axes, images in zip(grid, rows.values(), strict=True):
        axes.set_axis_off()
        if images is not None:
            height, width = images.shape[-2:]
            gap = 1 + width // 8  # white; axes for each image cost time
            row = np.full((height, columns, width + gap, 3), 255, np.uint8)
            row[:, : len(images[:columns]), :width] = (
                images[:columns, :3].permute(2, 0, 3, 1).numpy()
            )
            axes.imshow(row.reshape(height, -1, 3)[:, :-gap])
    return figure


FIGURES = {
    "accuracy": accuracy_figure,
    "risk": risk_figure,
    "clusters": clusters_figure,
    "violations": violations_figure,
    "fairness": fairness_figure,
    "confusion": confusion_figure,
    "spent": spent_figure,
}
"""What is drawn of one run's history, by name."""
