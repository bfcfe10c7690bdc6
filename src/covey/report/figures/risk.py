"""What the red team saw, and how it was: the risk of every cluster model."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from covey.events import ClusterAudited, RiskMeasured, RiskUnknown
from covey.history import History
from covey.report.figures.style import (
    CLUSTERS,
    INK,
    MARKERS,
    MISSING,
    Picture,
    key,
    legend,
    quiet,
    say,
    whole_rounds,
)
from covey.report.queries import finish_line

__all__ = ["risk_figure"]

MOST_CLUSTERS = len(CLUSTERS)


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
        _one(axes, [m for m in history.measured if m.cluster == j], len(clusters))
        for j in clusters
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
        (m.round_index + shift, m.risk)
        for m in measured
        if m.risk is not None and m.calibrated
    ]
    axes.plot(
        [t for t, _ in known],
        [risk for _, risk in known],
        color=colour,
        linewidth=0.9,
        alpha=0.5,
    )
    return Line2D([], [], color=colour, marker=marker, label=f"cluster {j}")


def _many(axes: Axes, measured: Sequence[RiskMeasured], clusters: int) -> list[Artist]:
    """Draw the spread over clusters instead of each: forty lines tell nothing."""
    rounds = sorted({m.round_index for m in measured})
    known = {
        t: [m.risk for m in measured if m.round_index == t and m.risk is not None]
        for t in rounds
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
