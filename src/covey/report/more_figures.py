"""Pictures of ends and of several runs: attacks, fairness, comparisons, budgets."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy import ndarray
from torch import Tensor

from covey.base.events import ClientExposed, FairnessMeasured
from covey.base.history import History
from covey.components.built_ins import BASELINE
from covey.dp.current_guarantee import epsilon_over_rounds
from covey.report.attacks import final_risks
from covey.report.figures import (
    CLUSTERS,
    GROUPS,
    INK,
    MARKERS,
    MISSING,
    Picture,
    canvas,
    cycled,
    key,
    legend,
    lettering,
    quiet,
    say,
    whole_rounds,
)
from covey.report.queries import OVERALL, finish_line, group_sizes, utility, utility_lines
from covey.report.summary import client_groups, violations

DASHES = ("-", "--", "-.", ":")
DECADES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)

Curve = Sequence[tuple[float, float]]
"""(FPR, TPR), rising."""


def roc_figure(title: str, curves: Mapping[str, Curve], members: int) -> Figure:
    """Draw each attack's ROC curve on logarithmic axes.

    Read off it at the left how many members an attack finds while it accuses hardly
    anybody wrongly: there an attack is worth believing about a single record, and there
    an average hides it. The axis begins at one wrongly accused record; a curve begins
    where it finds its first member. The dotted line is a coin.
    """
    figure, axes = canvas(4.6)
    quiet(axes, title, "members found (TPR)", "non-members accused (FPR)")
    known = {name: np.array(curve) for name, curve in curves.items() if len(curve)}
    if not known:
        say(axes, "unknown: there is nobody to compare the members with")
        return figure
    start = min(curve[0, 0] for curve in known.values())
    axes.plot([start, 1], [start, 1], color=INK, linewidth=0.9, linestyle=":")
    keys = [Line2D([], [], color=INK, linewidth=0.9, linestyle=":", label="a coin toss")]
    for index, (name, curve) in enumerate(known.items()):
        look = {
            "color": cycled(CLUSTERS, index),
            "linestyle": cycled(DASHES, index),
            "linewidth": 1.8,
        }
        found = np.where(curve[:, 1] > 0, curve[:, 1], np.nan)
        axes.plot(curve[:, 0], found, drawstyle="steps-post", **look)
        keys.append(Line2D([], [], label=lettering(name), **look))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(start, 1)
    # the first tick stands for one accused record: no decade too close to it
    axes.set_xticks([start, *(t for t in DECADES if t > 1.6 * start)])
    axes.set_ylim(min(start, 1 / max(1, members)) * 0.9, 1.15)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_percent))
    legend(figure, keys, 4)
    return figure


def _percent(share: float, _: int | None = None) -> str:
    return f"{100 * share:.2g}%" if share < 1 else "100%"


MOST_SAMPLES = 12

Placed = tuple[int, ClientExposed]
"""A client and its place on the horizontal axis."""


def violations_figure(history: History) -> Figure:
    """Draw each client's threshold, in rising order, against its final model's risk.

    Read off it who is above what it accepts: filled points above the line. Bars are one
    standard error, so a point just above may be chance. A pale dash is the client's
    exposure where that is higher: the riskiest model that it ever trained, which it
    cannot take back by moving. A grey cross has no figure. Risks are of the strongest
    attack on each model, which the axis names.
    """
    figure, axes = canvas(4.2)
    named = " and ".join(violations(history)["attacks"])
    quiet(axes, "Risk against what each client accepts",
          f"MIA accuracy, {named}" if named else "MIA accuracy",
          "clients, by their threshold")  # fmt: skip
    axes.set_xticks([])
    thresholds = history.started.risk_thresholds if history.started else {}
    clients = sorted(
        (each for each in final_risks(history) if each.handle in thresholds),
        key=lambda each: (thresholds[each.handle], each.handle),
    )
    if not clients:
        say(axes, _why_nobody(history))
        return figure
    _line(axes, [thresholds[each.handle] for each in clients])
    groups = client_groups(history)
    scale = max(0.2, min(1.0, 80 / len(clients)))  # else hundreds hide each other
    for index, group in enumerate([*group_sizes(history), None]):
        colour = cycled(GROUPS, index) if group else INK
        own = [(x, c) for x, c in enumerate(clients) if groups.get(c.handle) == group]
        above = [(x, c) for x, c in own if (c.risk or 0.0) > thresholds[c.handle]]
        _points(axes, above, (colour, colour), scale)
        _points(axes, [c for c in own if c not in above], (colour, "white"), scale)
        _exposures(axes, own, colour, scale)
    _crosses(axes, [x for x, client in enumerate(clients) if client.risk is None])
    legend(figure, _violation_keys(history, clients), 4)
    return figure


def fairness_figure(history: History) -> Figure:
    """Draw each gap between groups: its mean over the classes, and its maximum.

    Read off it how differently the groups are treated, and whether chance does as much:
    p is the share of shuffled groups whose mean gap is at least as large. The maximum
    over many classes is well above 0 even without any disparity. The thick bar is the
    95% interval of the mean over resampled clients and test examples.
    """
    gaps = [gap for gap in history.fairness if gap.mean is not None]
    figure, axes = canvas(1.4 + 0.45 * max(2, len(gaps)))
    quiet(axes, "Gaps between groups", "", "difference of rates, 0 is equal")
    axes.grid(visible=False)
    if not gaps:
        say(axes, "unknown: there are no groups to compare, or no figure yet")
        axes.set_yticks([])
        return figure
    for place, gap in enumerate(gaps):
        _gap(axes, place, gap)
    axes.set_yticks(range(len(gaps)), [gap.gap.replace("_", " ") for gap in gaps])
    axes.set_ylim(len(gaps) - 0.4, -0.6)
    furthest = max(gap.maximum or gap.mean or 0.0 for gap in gaps)
    axes.set_xlim(0, 1.75 * furthest or 1)  # room for the words at the right
    mean = key("o", "mean over the classes", GROUPS[1])
    most = key("o", "maximum over the classes", GROUPS[1], "white")
    legend(figure, [mean, most])
    return figure


def samples_figure(samples: Mapping[str, Tensor]) -> Figure:
    """Draw a row of images (uint8, n x c x h x w) of each group.

    Read off it what sets the groups apart, as a model would see it.
    """
    columns = min(MOST_SAMPLES, max((len(x) for x in samples.values()), default=1))
    rows = max(1, len(samples))
    figure = Picture(figsize=(8.0, 0.35 + 0.82 * rows), layout="constrained")
    grid = figure.subplots(rows, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, (group, images) in zip(grid.flat, samples.items(), strict=False):
        axes.set_title(lettering(group), loc="left", fontsize=10, color=INK)
        axes.imshow(_side_by_side(images[:columns], columns))
    return figure


def _side_by_side(images: UInt8[Tensor, "n c h w"], places: int) -> UInt8[ndarray, "h wide rgb"]:
    """Return one picture of all, white where there is none; axes for each cost time."""
    height, width = images.shape[-2:]
    gap = 1 + width // 8
    row = np.full((height, places * (width + gap) - gap, 3), 255, np.uint8)
    for place, image in enumerate(images):
        left = place * (width + gap)
        row[:, left : left + width] = image[:3].permute(1, 2, 0).numpy()
    return row


def _why_nobody(history: History) -> str:
    if not history.exposures:
        return "unknown: the truth is measured at the end, and this run has none yet"
    return "unknown: nobody's threshold is known"


def _line(axes: Axes, thresholds: Sequence[float]) -> None:
    edges = [place - 0.5 for place in range(len(thresholds) + 1)]
    axes.stairs(thresholds, edges, baseline=None, color=INK, linewidth=1.4)
    axes.axhline(0.5, color=INK, linewidth=0.9, linestyle=":")
    axes.set_xlim(-1, len(thresholds))


def _points(axes: Axes, places: Sequence[Placed], colours: tuple[str, str], scale: float) -> None:
    known = [
        (x, client.risk, client.standard_error or 0.0)
        for x, client in places
        if client.risk is not None
    ]
    axes.errorbar(
        [x for x, _, _ in known],
        [risk for _, risk, _ in known],
        yerr=[error for _, _, error in known],
        fmt="o",
        color=colours[0],
        markerfacecolor=colours[1],
        markersize=5 * scale**0.5,
        markeredgewidth=scale**0.5,
        elinewidth=0.8 * scale,
    )


def _exposures(axes: Axes, places: Sequence[Placed], colour: str, scale: float) -> None:
    higher = [(x, _higher_exposure(client)) for x, client in places]
    known = [(x, exposure) for x, exposure in higher if exposure is not None]
    axes.plot(
        [x for x, _ in known],
        [exposure for _, exposure in known],
        "_",
        color=colour,
        alpha=0.45,
        markersize=9 * scale,
        markeredgewidth=2,
    )


def _crosses(axes: Axes, places: Sequence[int]) -> None:
    """Mark at the foot of the axes the clients whose risk is unknown."""
    heights = [0.03] * len(places)
    axes.plot(places, heights, "x", color=MISSING, transform=axes.get_xaxis_transform())


def _violation_keys(history: History, clients: Sequence[ClientExposed]) -> list[Artist]:
    keys: list[Artist] = [Line2D([], [], color=INK, label="accepted: the threshold")]
    keys += [
        key("o", group, cycled(GROUPS, index)) for index, group in enumerate(group_sizes(history))
    ]
    keys += [key("o", "filled: above", INK), key("o", "hollow: accepted", INK, "white")]
    if any(_higher_exposure(each) is not None for each in clients):
        keys.append(key("_", "exposure, where higher", MISSING))
    if any(each.risk is None for each in clients):
        keys.append(key("x", "risk unknown", MISSING))
    return keys


def _gap(axes: Axes, place: int, gap: FairnessMeasured) -> None:
    mean = gap.mean or 0.0
    most = mean if gap.maximum is None else gap.maximum
    axes.plot([mean, most], [place, place], color=GROUPS[1], alpha=0.4)
    if gap.low is not None and gap.high is not None:
        axes.plot([gap.low, gap.high], [place, place], color=GROUPS[1], linewidth=4)
    axes.plot(most, place, "o", color=GROUPS[1], markerfacecolor="white")
    axes.plot(mean, place, "o", color=GROUPS[1])
    if gap.p_value is not None:
        axes.annotate(
            f"p = {gap.p_value:.3f}, {_verdict(gap.p_value)}",
            (most, place),
            xytext=(10, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color="#555555",
        )


def _higher_exposure(each: ClientExposed) -> float | None:
    """Return a client's exposure, where it is above the risk of its final model."""
    if each.exposure is None or each.exposure <= (each.risk or 0.0):
        return None
    return each.exposure


def _verdict(p_value: float) -> str:
    return "more than chance" if p_value < 0.05 else "chance alone does as much"


Dash = Literal["-", "--", ":", "-."]
RUN_DASHES: tuple[Dash, ...] = ("-", ":", "-.")


def overlaid_accuracy(runs: Sequence[tuple[str, History]]) -> Figure:
    """Draw the accuracy of several runs: of all clients, and of the smallest group.

    Runs of one label (the seeds of one setting) share a colour; FedAvg is black and
    dashed. Read off it what a mean hides: a method may win on the left and lose its
    minority on the right.
    """
    figure = Picture(figsize=(8.0, 4.2), layout="constrained")
    everybody, smallest = figure.subplots(1, 2, sharey=True)
    names = dict.fromkeys(utility(history).name for _, history in runs)
    down = f"{' or '.join(names) or 'accuracy'} on unseen data"
    quiet(everybody, "All clients", down, "round")
    quiet(smallest, "Smallest group", "", "round")
    looks = _looks(runs)
    for label, history in runs:
        lines = utility_lines(history)
        group = next(iter(group_sizes(history)), None)
        for axes, name in ((everybody, OVERALL), (smallest, group)):
            points = lines.get(name, []) if name else []
            axes.plot(
                [t for t, _ in points],
                [value for _, value in points],
                looks[label][1],
                color=looks[label][0],
                linewidth=1.3,
                alpha=0.85,
            )
    if not any(group_sizes(history) for _, history in runs):
        say(smallest, "unknown: the clients have no known groups")
    for axes in (everybody, smallest):
        whole_rounds(axes, max((finish_line(h) for _, h in runs), default=1))
    keys = [
        Line2D([], [], color=colour, linestyle=dash, label=lettering(label))
        for label, (colour, dash) in looks.items()
    ]
    legend(figure, keys, 2)
    return figure


def _looks(runs: Sequence[tuple[str, History]]) -> dict[str, tuple[str, Dash]]:
    """Return each label's colour and dash; beyond the last colour, dots tell apart."""
    looks: dict[str, tuple[str, Dash]] = {}
    others = 0
    for label, history in runs:
        if label in looks:
            continue
        if history.started and history.started.method == BASELINE:
            looks[label] = (INK, "--")
        else:
            dash = RUN_DASHES[others // len(CLUSTERS) % len(RUN_DASHES)]
            looks[label] = (cycled(CLUSTERS, others), dash)
            others += 1
    return looks


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
    for axes, (metric, title) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        down = "accuracy on unseen data" if metric == "accuracy" else ""
        quiet(axes, title, down, "violations")
        points = _pareto_points(means, metric)
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
        if not best or points[i][1] > points[best[-1]][1] or points[i] == points[best[-1]]:
            best.append(i)
    return best


def _pareto_points(means: Sequence[Mapping[str, Any]], metric: str) -> list[_Point]:
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


POINTS = 10
"""Places at which the account is drawn; each takes a moment to add up."""

BUDGET_PANELS = {
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
    for axes, (metric, title) in zip(figure.subplots(1, 3), BUDGET_PANELS.items(), strict=True):
        quiet(axes, title, "", "epsilon")
        axes.set_xscale("log")
        axes.set_xticks([*levels, edge], [*(f"{e:g}" for e in levels), "none"])
        axes.set_xticks([], minor=True)
        axes.set_xlim(min([edge, *levels]) / 2, edge * 2)
        axes.margins(y=0.15)
        for place, own in enumerate(lines.values()):
            _draw_budget(axes, place, own, metric, edge)
    looks = [(*_budget_look(i), name) for i, name in enumerate(lines)]
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


def _draw_budget(
    axes: Axes, place: int, rows: Sequence[Mapping[str, Any]], metric: str, edge: float
) -> None:
    """Draw every run as a point, and a line through the means over seeds."""
    marker, colour = _budget_look(place)
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


def _budget_look(place: int) -> tuple[str, str]:
    return MARKERS[place % len(MARKERS)], cycled(CLUSTERS, place)
