"""How attacks on one model trade finding members for accusing others."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from covey.report.figures.style import (
    CLUSTERS,
    INK,
    canvas,
    cycled,
    legend,
    lettering,
    quiet,
    say,
)

__all__ = ["roc_figure"]

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
    keys = [
        Line2D([], [], color=INK, linewidth=0.9, linestyle=":", label="a coin toss")
    ]
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
