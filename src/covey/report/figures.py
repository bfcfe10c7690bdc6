"""Pictures of one run, for its report, notebooks and the browser; the look of all pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from jaxtyping import UInt8
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy import ndarray
from torch import Tensor

from covey.base.events import ClientExposed, RiskMeasured, RiskUnknown
from covey.base.figure import RiskEstimate
from covey.base.history import History
from covey.base.names import Handle, round_number
from covey.dp.status import epsilon_over_rounds
from covey.report.attacks import final_exposure, final_risk
from covey.report.queries import OVERALL, finish_line, group_sizes, utility, utility_lines
from covey.report.summary import client_groups, violations

INK = "#222222"
GREY = "#666666"
MISSING = "#999999"
GROUPS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's."""
CLUSTERS = ("#332288", "#44AA99", "#CC6677", "#DDCC77", "#882255", "#88CCEE", "#117733", "#AA4499")
"""Paul Tol's muted: other hues than the groups', which are not the clusters."""
MOST_CLUSTERS = len(CLUSTERS)
"""That are told apart; more of them are summarised."""
MARKERS = "osD^vP*X"
WIDTH, HEIGHT = 8.0, 4.2
"""In inches of 100 pixels; a page leaves so much room before it has the picture."""


class Picture(Figure):
    """A figure that a notebook shows, whether or not pyplot was ever imported."""

    def _repr_svg_(self) -> str:
        return svg(self).decode()


def canvas(
    height: float = HEIGHT,
    rows: int = 1,
    columns: int = 1,
    ratios: Sequence[float] | None = None,
    *,
    shared: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Return a blank figure, 800 pixels wide, and its axes, row by row.

    `ratios` are those of its rows or columns, which share the other axis if `shared`.
    """
    figure = Picture(figsize=(WIDTH, height), layout="constrained")
    down, across = rows > 1, columns > 1
    grid = figure.subplots(
        rows,
        columns,
        squeeze=False,
        sharex=shared and down,
        sharey=shared and across,
        height_ratios=ratios if down else None,
        width_ratios=ratios if across else None,
    )
    return figure, list(grid.flat)


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
    middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
    axes.text(0.5, 0.5, sentence, fontsize=10, color=GREY, wrap=True, **middle)


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


def crosses(axes: Axes, places: Sequence[Any], heights: Sequence[float] | float = 0.03) -> None:
    """Mark at the foot of the axes what has no figure."""
    share = np.broadcast_to(heights, len(places))
    axes.plot(places, share, "x", color=MISSING, transform=axes.get_xaxis_transform())


def svg(figure: Figure) -> bytes:
    """Return a figure as SVG bytes, equal for equal figures; its words are text."""
    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "covey", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def accuracy_figure(history: History, baseline: History | None = None) -> Figure:
    """Draw accuracy, or squared error, on unseen data per round, overall and by group.

    Read off it whether a group is left behind while the mean does well, and whether
    personalisation helps at all: dashed is FedAvg, one model for everybody. The legend
    has the values at the end.
    """
    figure, (axes,) = canvas()
    name = utility(history).name
    quiet(axes, f"{name.capitalize()} on unseen data", name, "round")
    runs = [(history, "", "-"), *([(baseline, "FedAvg, ", "--")] if baseline else [])]
    handles: list[Artist] = []
    for shown, prefix, dash in runs:
        for index, (group, points) in enumerate(utility_lines(shown).items()):
            if points:
                handles += axes.plot(
                    *zip(*points, strict=True),
                    dash,
                    color=INK if group == OVERALL else cycled(GROUPS, index - 1),
                    linewidth=(2.4 if group == OVERALL else 1.6) - (0.4 if prefix else 0),
                    alpha=0.75 if prefix else 1,
                    marker="." if len(points) < 12 else None,
                    label=lettering(f"{prefix}{group} {points[-1][1]:.3f}"),
                )
    if not handles:
        say(axes, "unknown: nothing has been measured yet")
    whole_rounds(axes, finish_line(history))
    pairs = max(1, len(handles) // len(runs))  # legends are filled column by column
    legend(figure, [each for i in range(pairs) for each in handles[i::pairs]], min(pairs, 4))
    return figure


def clusters_figure(history: History) -> Figure:
    """Draw how many clients sit in each cluster, and how many moved, per round.

    Read off it whether the clusters settle, keep flapping, or collapse into one. Grey
    are rounds of a warm start: there are no clusters, and all share one model.
    """
    figure, (sizes, moves) = canvas(rows=2, ratios=(2.2, 1.0), shared=True)
    quiet(sizes, "Clients per cluster", "clients", "")
    quiet(moves, "Clients that moved", "clients", "round")
    moves.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if history.rounds:
        first = history.rounds[0].round_index
        edges = [first + k - 0.5 for k in range(len(history.rounds) + 1)]
        legend(figure, _sizes(sizes, history, edges), 5)
        moved = [row.moved for row in history.rounds]
        moves.stairs(moved, edges, fill=True, color=INK)
        moves.set_ylim(0, max(1, *moved) * 1.1)
    else:
        say(sizes, "no round has been played yet")
    whole_rounds(moves, finish_line(history))
    return figure


def _sizes(axes: Axes, history: History, edges: Sequence[float]) -> list[Artist]:
    rows, number = history.rounds, len(history.rounds[0].clients)
    if number > MOST_CLUSTERS:  # forty layers tell nothing
        quiet(axes, f"Clients per cluster: {number} clusters, summarised", "clients", "")
        lines = {
            "clients in the largest cluster": [max(row.clients) for row in rows],
            "clusters in use": [sum(map(bool, row.clients)) for row in rows],
        }
        t = [row.round_index for row in rows]
        drawn = [
            axes.plot(t, line, color=colour, label=name)
            for (name, line), colour in zip(lines.items(), CLUSTERS, strict=False)
        ]
        axes.set_ylim(bottom=0)
        return [line for (line,) in drawn]
    layers = [
        (f"cluster {j}", CLUSTERS[j], [row.clients[j] for row in rows]) for j in range(number)
    ]
    shared = [0 if any(row.clients) else row.participants for row in rows]
    if any(shared):
        layers.insert(0, ("no clusters yet, one shared model", "#c4c4c4", shared))
    below = np.zeros(len(rows))
    handles: list[Artist] = []
    for name, colour, layer in layers:
        axes.stairs(below + layer, edges, baseline=below, fill=True, color=colour, alpha=0.85)
        handles.append(Patch(color=colour, alpha=0.85, label=name))
        below = below + layer
    return handles


def prices_figure(history: History) -> Figure:
    """Draw each cluster's subsidy, and the share of clients that want it, per round.

    Read off it what it takes to keep a cluster: its price rises while fewer clients
    want it than it should keep (dashed), and falls to 0 where enough want it anyway.
    Bold is the share that it has, pale the share that wants it.
    """
    figure, (prices, shares) = canvas(rows=2, shared=True)
    quiet(prices, "Subsidy of each cluster", "cost units", "")
    quiet(shares, "Share of the clients that are in it; pale: that want it", "share", "round")
    handles: list[Artist] = []
    facts, rows = [fact for _, fact in history.prices], history.rounds
    t = [round_index for round_index, _ in history.prices]
    for j in range(len(facts[0].prices) if facts else 0):
        look: dict[str, Any] = {"color": cycled(CLUSTERS, j), "marker": "."}
        handles += prices.plot(t, [each.prices[j] for each in facts], label=f"cluster {j}", **look)
        shares.plot(t, [each.wished[j] for each in facts], alpha=0.35, **look)
        share = [row.clients[j] / max(1, sum(row.clients)) for row in rows]
        shares.plot([row.round_index for row in rows], share, color=look["color"], linewidth=2)
    if facts:
        target, dashed = facts[0].target_share, {"linestyle": "--", "linewidth": 1, "zorder": 1}
        handles.append(shares.axhline(target, color=INK, label=f"target {target:g}", **dashed))
    else:
        say(prices, "no prices have been set")
    whole_rounds(shares, finish_line(history))
    prices.set_ylim(bottom=0)
    shares.set_ylim(0, 1)
    legend(figure, handles, 5)
    return figure


def risk_figure(history: History) -> Figure:
    """Draw each cluster's measured risk over the rounds, beside the truth at the end.

    Read off it which model is the exposed one, how sure the red team was (bars: one
    standard error either way), and whether it was right: diamonds on the right are the
    true audit. 0.5 is an attacker who tosses a coin. Hollow: not calibrated, not to be
    acted on. A grey cross is a figure that was withheld; in grey rounds clients chose
    while some cluster had none.
    """
    figure, (seen, truth) = canvas(columns=2, ratios=(4.2, 1.0), shared=True)
    quiet(seen, "Measured risk", "MIA accuracy", "round")
    quiet(truth, "True risk", "", "at the end")
    for axes in (seen, truth):
        axes.axhline(0.5, color=INK, linewidth=0.9, linestyle=":")
    whole_rounds(seen, finish_line(history))
    blind = [t for t, event in history.notable if isinstance(event, RiskUnknown)]
    for t in blind:
        seen.axvspan(t - 0.5, t + 0.5, color=MISSING, alpha=0.15, linewidth=0)
    measured, audits = history.measured, history.audits
    by_cluster = {j: [m for m in measured if m.cluster == j] for j in {m.cluster for m in measured}}
    if not measured:
        say(seen, "unknown: no red team has looked at this run")
    if len(by_cluster) > MOST_CLUSTERS:
        handles = _spread(seen, measured, len(by_cluster))
    else:
        middle = (len(by_cluster) - 1) / 2  # shifted, so that bars do not cover others
        handles = [_series(seen, own, 0.24 * (j - middle)) for j, own in sorted(by_cluster.items())]
    _truth(truth, history)
    every = [*(each.estimate for each in measured), *(each.truth for each in audits)]
    known = [(each.risk, each.standard_error) for each in every if each.is_known]
    low = min([0.45, *(risk - error for risk, error in known)])
    high = max([0.6, *(risk + error for risk, error in known)])
    seen.set_ylim(low - 0.12 * (high - low), high + 0.05 * (high - low))  # crosses at the foot
    if audits:
        handles.append(key("D", "true risk at the end", INK, MISSING))
    if len(known) < len(every):
        handles.append(key("x", "withheld", MISSING))
    if any(e.estimate.is_known and not e.estimate.calibrated for e in measured):
        handles.append(key("o", "not calibrated", INK, "white"))
    if blind:
        handles.append(Patch(color=MISSING, alpha=0.25, label="clients chose without a figure"))
    legend(figure, handles, 3 if len(by_cluster) > MOST_CLUSTERS else 5)
    return figure


def _series(axes: Axes, measured: Sequence[RiskMeasured], shift: float) -> Artist:
    """Draw one cluster's figures."""
    j, estimates = measured[0].cluster, [each.estimate for each in measured]
    look: dict[str, Any] = {"color": cycled(CLUSTERS, j), "marker": cycled(MARKERS, j)}
    withheld = [each.round_index + shift for each in estimates if not each.is_known]
    crosses(axes, withheld, 0.03 + 0.05 * j)
    for calibrated in (True, False):
        known = [
            (each.round_index + shift, each.risk, each.standard_error)
            for each in estimates
            if each.is_known and each.calibrated == calibrated
        ]
        t, risks, errors = zip(*known, strict=True) if known else ((), (), ())
        face = look["color"] if calibrated else "white"
        bars = {"linestyle": "", "markersize": 5.5, "elinewidth": 1.3, **look}
        axes.errorbar(t, risks, yerr=errors, markerfacecolor=face, **bars)
        if calibrated:
            axes.plot(t, risks, color=look["color"], linewidth=0.9, alpha=0.5)
    return Line2D([], [], label=f"cluster {j}", **look)


def _spread(axes: Axes, measured: Sequence[RiskMeasured], clusters: int) -> list[Artist]:
    """Draw the spread over clusters instead of each: forty lines tell nothing."""
    risks: dict[int, list[float]] = {}
    estimates = [each.estimate for each in measured]
    for each in estimates:
        risks.setdefault(each.round_index, []).extend([each.risk] if each.is_known else [])
    for t, known in risks.items():
        if withheld := sum(each.round_index == t for each in estimates) - len(known):
            foot = {"transform": axes.get_xaxis_transform(), "ha": "center"}
            axes.text(t, 0.02, f"{withheld} withheld", fontsize=8, color=GREY, **foot)
    drawn = sorted(t for t, known in risks.items() if known)
    if not drawn:
        say(axes, f"unknown: the figures of all {clusters} clusters were withheld")
        return []
    shares = np.array([np.percentile(risks[t], [0, 25, 50, 75, 100]) for t in drawn]).T
    for low, high, alpha in ((0, 4, 0.2), (1, 3, 0.35)):
        axes.vlines(drawn, shares[low], shares[high], CLUSTERS[0], linewidth=9, alpha=alpha)
    look: dict[str, Any] = {"color": CLUSTERS[0], "marker": "o"}
    axes.plot(drawn, shares[2], markersize=4, linewidth=1, **look)
    return [Line2D([], [], label=f"{clusters} clusters: median, middle half, range", **look)]


def _truth(axes: Axes, history: History) -> None:
    audits = history.audits
    many = len(audits) > MOST_CLUSTERS
    for audit in audits:
        if audit.truth.is_known:
            axes.errorbar(
                audit.cluster,
                audit.truth.risk,
                yerr=audit.truth.standard_error,
                fmt="D",
                color=CLUSTERS[0 if many else audit.cluster % MOST_CLUSTERS],
                markeredgecolor=INK,
                markersize=3 if many else 7,
                elinewidth=0.5 if many else 1.3,
                alpha=0.6 if many else 1,
            )
    crosses(axes, [audit.cluster for audit in audits if not audit.truth.is_known])
    if audits:
        axes.set_xlim(-0.7, len(audits) - 0.3)
    else:
        say(axes, "unknown:\nnot finished")
    axes.set_xticks([] if many else [audit.cluster for audit in audits])


def violations_figure(history: History) -> Figure:
    """Draw each client's threshold, in rising order, against its final model's risk.

    Read off it who is above what it accepts: filled points above the line. Bars are one
    standard error, so a point just above may be chance. A pale dash is the client's
    exposure where that is higher: the riskiest model that it ever trained, which it
    cannot take back by moving. A grey cross has no figure. Risks are of the strongest
    attack on each model, which the axis names.
    """
    figure, (axes,) = canvas()
    down = ", ".join(filter(None, ["MIA accuracy", " and ".join(violations(history).attacks)]))
    quiet(axes, "Risk against what each client accepts", down, "clients, by their threshold")
    axes.set_xticks([])
    thresholds = history.started.risk_thresholds if history.started else {}
    ends = [_End.of(history, each) for each in history.exposures if each.handle in thresholds]
    if not ends:
        unknown = "no threshold of a client is known"
        late = "the truth is measured at the end, and this run has none yet"
        say(axes, f"unknown: {unknown if history.exposures else late}")
        return figure
    ends.sort(key=lambda each: (thresholds[each.handle], each.handle))
    accepted = [thresholds[each.handle] for each in ends]
    edges = [place - 0.5 for place in range(len(ends) + 1)]
    axes.stairs(accepted, edges, baseline=None, color=INK, linewidth=1.4)
    axes.axhline(0.5, color=INK, linewidth=0.9, linestyle=":")
    axes.set_xlim(-1, len(ends))
    groups, sizes = client_groups(history), group_sizes(history)
    for index, group in enumerate([*sizes, None]):
        own = [(x, end) for x, end in enumerate(ends) if groups.get(end.handle) == group]
        _clients(axes, own, accepted, cycled(GROUPS, index) if group else INK)
    unknown = [x for x, end in enumerate(ends) if end.risk is None]
    crosses(axes, unknown)
    keys: list[Artist] = [Line2D([], [], color=INK, label="accepted: the threshold")]
    keys += [key("o", group, cycled(GROUPS, index)) for index, group in enumerate(sizes)]
    keys += [key("o", "filled: above", INK), key("o", "hollow: accepted", INK, "white")]
    if any(end.was_riskier for end in ends):
        keys.append(key("_", "exposure, where higher", MISSING))
    if unknown:
        keys.append(key("x", "risk unknown", MISSING))
    legend(figure, keys)
    return figure


@dataclass(frozen=True, slots=True)
class _End:
    """What a client ends with: the risk of its model, and of all that it ever reached."""

    handle: Handle
    risk: RiskEstimate | None
    exposure: float

    @classmethod
    def of(cls, history: History, client: ClientExposed) -> "_End":
        exposure = float(final_exposure(history, client))
        return cls(client.handle, final_risk(history, client), exposure)

    @property
    def was_riskier(self) -> bool:
        return self.exposure > (self.risk.risk if self.risk else 0.0)


def _clients(
    axes: Axes, ends: Sequence[tuple[int, _End]], accepted: Sequence[float], colour: str
) -> None:
    """Draw a group's clients at their places: risks, and exposures where these are higher."""
    scale = max(0.2, min(1.0, 80 / len(accepted)))  # else hundreds hide each other
    for above in (True, False):
        known = [
            (x, end.risk.risk, end.risk.standard_error)
            for x, end in ends
            if end.risk is not None and (end.risk.risk > accepted[x]) == above
        ]
        places, risks, errors = zip(*known, strict=True) if known else ((), (), ())
        axes.errorbar(
            places,
            risks,
            yerr=errors,
            fmt="o",
            color=colour,
            markerfacecolor=colour if above else "white",
            markersize=5 * scale**0.5,
            markeredgewidth=scale**0.5,
            elinewidth=0.8 * scale,
        )
    higher = [(x, end.exposure) for x, end in ends if end.was_riskier]
    dash = {"color": colour, "alpha": 0.45, "markersize": 9 * scale, "markeredgewidth": 2}
    axes.plot([x for x, _ in higher], [exposure for _, exposure in higher], "_", **dash)


def fairness_figure(history: History) -> Figure:
    """Draw each gap between groups: its mean over the classes, and its maximum.

    Read off it how differently the groups are treated, and whether chance does as much:
    p is the share of shuffled groups whose mean gap is at least as large. The maximum
    over many classes is well above 0 even without any disparity. The thick bar is the
    95% interval of the mean over resampled clients and test examples.
    """
    gaps = [(gap, gap.mean.value) for gap in history.fairness if gap.mean.value is not None]
    figure, (axes,) = canvas(1.4 + 0.45 * max(2, len(gaps)))
    quiet(axes, "Gaps between groups", "", "difference of rates, 0 is equal")
    axes.grid(visible=False)
    axes.set_yticks([])
    if not gaps:
        say(axes, "unknown: there are no groups to compare, or no figure yet")
        return figure
    colour, furthest = GROUPS[1], 0.0
    for place, (gap, mean) in enumerate(gaps):
        most = mean if gap.maximum is None else gap.maximum
        end = max(most, gap.mean.high or 0.0)  # the mean's interval may pass the maximum
        furthest = max(furthest, end)
        axes.plot([mean, most], [place, place], color=colour, alpha=0.4)
        low, high = gap.mean.low, gap.mean.high
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=colour, linewidth=4)
        axes.plot(most, place, "o", color=colour, markerfacecolor="white")
        axes.plot(mean, place, "o", color=colour)
        if gap.p_value is not None:
            verdict = "more than chance" if gap.p_value < 0.05 else "chance alone does as much"
            beside = {"xytext": (10, 0), "textcoords": "offset points", "va": "center"}
            words = f"p = {gap.p_value:.3f}, {verdict}"
            axes.annotate(words, (end, place), fontsize=9, color=GREY, **beside)
    axes.set_yticks(range(len(gaps)), [gap.gap.replace("_", " ") for gap, _ in gaps])
    axes.set_ylim(len(gaps) - 0.4, -0.6)
    axes.set_xlim(0, 1.75 * furthest or 1)  # room for the words at the right
    mean_key = key("o", "mean over the classes", colour)
    legend(figure, [mean_key, key("o", "maximum over the classes", colour, "white")])
    return figure


POINTS = 10
"""Places at which the account is drawn; each takes a moment to add up."""


def spent_figure(history: History) -> Figure:
    """Draw epsilon after so many merges, for a client and for a record.

    Read off it how much each further round takes. Rounds that were rolled back count:
    what they released stays released.
    """
    figure, (axes,) = canvas()
    quiet(axes, "Privacy spent", "epsilon", "merges")
    handles: list[Artist] = []
    for unit, points in epsilon_over_rounds(history, POINTS).items():
        if points:
            colour = cycled(CLUSTERS, len(handles))
            axes.plot(*zip((0, 0.0), *points, strict=True), color=colour, marker="o", ms=4)
            handles.append(key("o", f"of a {unit}", colour))
    if not handles:
        say(axes, "unknown: nothing is guaranteed")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    legend(figure, handles, 2)
    return figure


MOST_SAMPLES = 12


def samples_figure(samples: Mapping[str, Tensor]) -> Figure:
    """Draw a row of images (uint8, n x c x h x w) of each group.

    Read off it what sets the groups apart, as a model would see it.
    """
    columns = min(MOST_SAMPLES, max((len(x) for x in samples.values()), default=1))
    rows = max(1, len(samples))
    figure, grid = canvas(0.35 + 0.82 * rows, rows)
    for axes in grid:
        axes.set_axis_off()
    for axes, (group, images) in zip(grid, samples.items(), strict=False):
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


FIGURES = {
    "accuracy": accuracy_figure,
    "risk": risk_figure,
    "clusters": clusters_figure,
    "violations": violations_figure,
    "fairness": fairness_figure,
    "prices": prices_figure,
    "spent": spent_figure,
}
"""What is drawn of one run, by name."""
