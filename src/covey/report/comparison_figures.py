"""Pictures of what is laid side by side: attacks, runs, settings, budgets of privacy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from covey.base.built_ins import BASELINE
from covey.base.history import History
from covey.report.figures import (
    INK,
    MARKERS,
    MISSING,
    SETTINGS,
    canvas,
    counted,
    cycled,
    key,
    legend,
    lettering,
    say,
    whole_rounds,
)
from covey.report.queries import OVERALL, finish_line, group_sizes, utility, utility_lines

DASHES = ("-", "--", "-.", ":")
LINES: Sequence[Any] = ("-", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 3)), (0, (9, 3)))
"""Of settings that are no baseline, so that they differ without colour."""
DECADES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)

Curve = Sequence[tuple[float, float]]
"""(FPR, TPR), rising."""


BUDGET_PANELS = {
    "accuracy": ("Accuracy", "", ""),
    "true_risk_minority": ("Membership risk, smallest group", "", ""),
    "violations": ("Violations", "", "epsilon"),
}


def roc_figure(title: str, curves: Mapping[str, Curve], members: int) -> Figure:
    """Draw each attack's ROC curve on logarithmic axes.

    Read off it at the left how many members an attack finds while it accuses almost no
    non-member: there an attack is worth believing about a single record, and there an
    average hides it. The axis begins at one wrongly accused record; a curve begins where
    it finds its first member. The dotted line is guessing.
    """
    figure, (axes,) = canvas((title, "members found", "non-members accused"))
    known = {name: np.array(curve) for name, curve in curves.items() if len(curve)}
    if not known:
        say(axes, "unknown: there are no non-members to compare with")
        return figure
    start = min(curve[0, 0] for curve in known.values())
    guessing = {"color": INK, "linewidth": 0.9, "linestyle": ":", "label": "guessing"}
    axes.plot([start, 1], [start, 1], **guessing)
    for index, (name, curve) in enumerate(known.items()):
        dash, colour = cycled(DASHES, index), cycled(SETTINGS, index)
        rates = np.where(curve[:, 1] > 0, curve[:, 1], np.nan)
        look = {"color": colour, "linewidth": 1.8, "label": lettering(name)}
        axes.plot(curve[:, 0], rates, dash, drawstyle="steps-post", **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(start, 1)
    # the first tick stands for one accused record: no decade too close to it
    axes.set_xticks([start, *(t for t in DECADES if t > 3 * start)])
    axes.set_ylim(min(start, 1 / max(1, members)) * 0.9, 1.15)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda share, _: f"{100 * share:.2g}%" if share < 1 else "100%")
    legend(figure, columns=2)
    return figure


def _looks(settings: Sequence[str], baselines: Sequence[bool]) -> dict[str, dict[str, Any]]:
    """Return how each setting is drawn, everywhere on a page: FedAvg is black and dashed."""
    kinds = dict(zip(settings, baselines, strict=True))
    looks = {name: {"color": INK, "linestyle": "--", "marker": MARKERS[0]} for name in kinds}
    for place, name in enumerate(name for name, is_baseline in kinds.items() if not is_baseline):
        marker, dash = cycled(MARKERS[1:], place), cycled(LINES, place)
        looks[name] = {"color": cycled(SETTINGS, place), "linestyle": dash, "marker": marker}
    return looks


def overlaid_accuracy(runs: Sequence[tuple[str, History]]) -> Figure:
    """Draw the accuracy of several runs: of all clients, and of the smallest group.

    Runs of one label (the seeds of one setting) are one line, their mean, in a band of one
    standard deviation; FedAvg is black and dashed. Lines that coincide show by their dashes
    and widths, and by their names at the ends. Read off it what a mean hides: a method may
    win above and lose its minority below.
    """
    names = dict.fromkeys(utility(history).name for _, history in runs)
    down = f"{' or '.join(names) or 'accuracy'} on unseen data"
    panels = ("All clients", down, ""), ("Smallest group", down, "round")
    figure, (overall, smallest) = canvas(*panels, height=6.4, sharex=True, sharey=True)
    methods = [history.started.method if history.started else "" for _, history in runs]
    looks = _looks([label for label, _ in runs], [method == BASELINE for method in methods])
    for place, (label, look) in enumerate(looks.items()):
        look |= {"marker": None, "linewidth": 3.6 - 2.2 * place / max(1, len(looks) - 1)}
        same = [history for name, history in runs if name == label]
        groups = [next(iter(group_sizes(history)), "") for history in same]
        for axes, lines in ((overall, [OVERALL] * len(same)), (smallest, groups)):
            pairs = zip(same, lines, strict=True)
            known = [dict(utility_lines(history).get(line, ())) for history, line in pairs]
            rounds = sorted(set.intersection(*map(set, known)))  # known of all runs
            if not rounds:
                continue
            values = np.array([[curve[t] for t in rounds] for curve in known])
            mean = values.mean(axis=0)
            axes.plot(rounds, mean, label=lettering(label), **look)
            if len(same) > 1:
                error = values.std(axis=0, ddof=1)
                band = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
                axes.fill_between(rounds, mean - error, mean + error, **band)
    if not any(group_sizes(history) for _, history in runs):
        say(smallest, "unknown: the clients\nhave no known groups")
    for axes in (overall, smallest):
        whole_rounds(axes, max((finish_line(history) for _, history in runs), default=1))
        _name_ends(axes)
    keys = [Line2D([], [], label=lettering(label), **look) for label, look in looks.items()]
    legend(figure, keys, 1)
    return figure


def _name_ends(axes: Axes) -> None:
    """Write the name of each line beside its end, above that of the next lower one."""
    low, high = axes.get_ylim()
    place, apart = -np.inf, min(0.07, 1 / max(1, len(axes.lines)))
    ends = {line: np.asarray(line.get_xydata())[-1] for line in axes.lines}
    for line, (x, y) in sorted(ends.items(), key=lambda end: float(end[1][1])):
        name, place = str(line.get_label()), max((y - low) / (high - low), place + apart)
        look: dict[str, Any] = {"fontsize": 8, "color": line.get_color(), "va": "center"}
        dash = {"arrowstyle": "-", "color": MISSING, "relpos": (0, 0.5), "shrinkA": 0}
        short = name if len(name) <= 26 else f"{name[:24]} ..."
        at: dict[str, Any] = {"xytext": (1.03, place), "textcoords": "axes fraction"}
        axes.annotate(short, (x, y), **at, arrowprops=dash, **look)


def swept_figure(figure: str, keys: Sequence[str], means: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw means over the last of the swept settings, a line for each choice of the others.

    Bars are one standard deviation over the seeds.
    """
    *others, key = keys
    picture, (axes,) = canvas((f"{figure} over {key}", figure, key))
    values = list(dict.fromkeys(row[key] for row in means))
    numeric = all(isinstance(value, int | float) for value in values)
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for row in means:
        line = lines.setdefault(", ".join(f"{name}={row[name]}" for name in others), [])
        if row["mean"] is not None:
            place = row[key] if numeric else values.index(row[key])
            line.append((place, row["mean"], row["deviation"] or 0.0))
    looks = _looks([*lines], [False] * len(lines))
    for label, points in lines.items():
        if points:
            x, mean, error = zip(*sorted(points), strict=True)
            look = {"label": lettering(label), "capsize": 3, **looks[label]}
            axes.errorbar(x, mean, error, **look)
    if not numeric:
        axes.set_xticks(range(len(values)), [lettering(str(value)) for value in values])
    if not axes.lines:
        say(axes, "unknown: no setting has\nthis figure in every run")
    if others:
        legend(picture, columns=1)
    return picture


def pareto_figure(means: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> Figure:
    """Draw accuracy against violations, one point per setting, as `means` gives them.

    Bars are one standard deviation over the seeds. Read off it which settings are worth
    having: filled, and on the line, the front. A hollow one has another beside it that is
    at least as accurate with no more violations. A setting may be on the front at the
    left and not at the right, where its minority pays. `names`: what the legend calls the
    settings instead.
    """
    down = "accuracy on unseen data"
    titles = ("All clients", down, "violations"), ("Smallest group", "", "violations")
    figure, panels = canvas(*titles, ncols=2)
    settings = [row["setting"] for row in means]
    looks = _looks(settings, [setting.startswith(BASELINE) for setting in settings])
    for axes, metric in zip(panels, ("accuracy", "minority_accuracy"), strict=True):
        counted(axes.xaxis)
        rows = [
            row for row in means if None not in (row["violations"]["mean"], row[metric]["mean"])
        ]
        if not rows:
            say(axes, "unknown: no setting has\nboth figures in every run")
        points = [(row["violations"]["mean"], row[metric]["mean"]) for row in rows]
        best = front(points)
        line: dict[str, Any] = {"color": MISSING, "linewidth": 1.2, "zorder": 1}
        axes.plot([points[i][0] for i in best], [points[i][1] for i in best], **line)
        for i, row in enumerate(rows):
            look = looks[row["setting"]]
            axes.errorbar(
                *points[i],
                xerr=row["violations"]["deviation"] or 0.0,
                yerr=row[metric]["deviation"] or 0.0,
                fmt=look["marker"],
                color=look["color"],
                markerfacecolor=look["color"] if i in best else "white",
                markersize=7,
                elinewidth=0.9,
            )
        axes.margins(0.12)
    shown = zip(names or settings, looks.values(), strict=True)
    legend(figure, [key(look["marker"], name, look["color"]) for name, look in shown], 1)
    return figure


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other dominates, fewest violations first.

    A point (violations, accuracy) dominates another if it has no more violations and no
    less accuracy, and differs.
    """
    best: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not best or points[i][1] > points[best[-1]][1] or points[i] == points[best[-1]]:
            best.append(i)
    return best


def epsilon_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw accuracy, risk and violations against epsilon, a colour per method and noise.

    Read off it what a smaller epsilon takes and gives. At the right edge: runs without
    noise, which have no epsilon at all. `rows` are those of `comparison`.
    """
    names = [f"{r['method']} {r['selection']}".strip() + f", noise {r['noise']}" for r in rows]
    names = [name if row["noise"] else f"{name}none" for name, row in zip(names, rows, strict=True)]
    looks = _looks(names, [row["method"] == BASELINE for row in rows])
    # to two digits: runs that were planned for the same epsilon stand together
    levels = [row["epsilon"] and float(f"{row['epsilon']:.2g}") for row in rows]
    ticks = sorted({level for level in levels if level is not None})
    edge = 4 * max(ticks, default=1.0)
    figure, panels = canvas(*BUDGET_PANELS.values(), height=6.4, sharex=True)
    for axes, metric in zip(panels, BUDGET_PANELS, strict=True):
        axes.set_xscale("log")
        axes.set_xticks([*ticks, edge], [*(f"{tick:g}" for tick in ticks), "none"])
        axes.set_xticks([], minor=True)
        axes.set_xlim(min([edge, *ticks]) / 2, edge * 2)
        axes.margins(y=0.15)
        for name, level, row in zip(names, levels, rows, strict=True):
            if row[metric] is not None:
                look = {**looks[name], "linestyle": "", "markersize": 6}
                axes.plot([edge if level is None else level], [row[metric]], **look)
    counted(panels[-1].yaxis)
    legend(figure, [key(look["marker"], name, look["color"]) for name, look in looks.items()], 1)
    return figure
