"""Each example's epsilon under each answer, beside what never-met models show."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.report.figures import GROUPS, INK, MISSING, cycled, quiet
from covey_papers.bench.forgetting import Forgotten

__all__ = ["forgetting_figure"]

SPREAD = 0.3


def forgetting_figure(found: Sequence[Forgotten]) -> Figure:
    """Draw a panel per federation, a column of points per answer, and its mean.

    The grey band has the mean epsilon of 99% of random halves of never-met models.
    """
    figure = Figure(figsize=(3.4 * len(found), 4.0), layout="constrained")
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, each in zip(panels, found, strict=True):
        down = "epsilon of an example" if axes is panels[0] else ""
        quiet(axes, each.name, down, "")
        _columns(axes, each)
    top = max(max(row.per_example) for each in found for row in each.rows)
    panels[0].set_ylim(0.0, 1.05 * top)
    return figure


def _columns(axes: Axes, each: Forgotten) -> None:
    low, high = each.control.low, each.control.high
    axes.axhspan(low, high, color=MISSING, alpha=0.3, linewidth=0)
    for index, row in enumerate(each.rows):
        count = len(row.per_example)
        beside = np.linspace(-SPREAD, SPREAD, count)
        axes.plot(
            index + beside,
            np.array(row.per_example),
            linestyle="none",
            marker="o",
            markersize=3,
            alpha=0.6,
            color=cycled(GROUPS, index),
        )
        mean = row.epsilon.mean
        axes.plot([index - SPREAD, index + SPREAD], [mean, mean], color=INK)
    names = [row.answer.replace("_", " ") for row in each.rows]
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
