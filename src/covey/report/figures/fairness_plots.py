"""How a run ended: clients above their threshold, and gaps between groups."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import UInt8
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray
from torch import Tensor

from covey.events import ClientExposed, FairnessMeasured
from covey.history import History
from covey.report.attacks import final_risks
from covey.report.figures.style import (
    GROUPS,
    INK,
    MISSING,
    Picture,
    canvas,
    cycled,
    key,
    legend,
    lettering,
    quiet,
    say,
)
from covey.report.queries import group_sizes
from covey.report.run_summary import client_groups, violations

__all__ = ["fairness_figure", "samples_figure", "violations_figure"]

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


def _side_by_side(
    images: UInt8[Tensor, "n c h w"], places: int
) -> UInt8[ndarray, "h wide rgb"]:
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


def _points(
    axes: Axes, places: Sequence[Placed], colours: tuple[str, str], scale: float
) -> None:
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
        key("o", group, cycled(GROUPS, index))
        for index, group in enumerate(group_sizes(history))
    ]
    keys += [
        key("o", "filled: above", INK),
        key("o", "hollow: accepted", INK, "white"),
    ]
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
