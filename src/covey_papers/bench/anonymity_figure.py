"""How the cost of anonymity sets grows with the clients of a round."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from covey.report.figures import GROUPS, INK, MISSING, cycled, quiet
from covey_papers.bench.anonymity_scale import SetsCost

__all__ = ["sets_growth_figure"]

MARKERS = "os^D"


def sets_growth_figure(found: Sequence[SetsCost]) -> Figure:
    """Draw processor seconds and peak memory against clients, a line per model size."""
    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    quiet(left, "Sets and their representatives", "processor seconds", "clients")
    _lines(left, found, lambda each: each.seconds)
    _proportional(left, found, lambda each: each.seconds)
    quiet(right, "Peak memory of the process", "GB", "clients")
    _lines(right, found, lambda each: each.peak_bytes / 1e9)
    return figure


def _lines(
    axes: Axes, found: Sequence[SetsCost], value: Callable[[SetsCost], float]
) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.08, y=0.14)
    for index, (parameters, own) in enumerate(_by_model(found)):
        colour = cycled(GROUPS, index)
        axes.plot(
            [each.size.clients for each in own],
            [value(each) for each in own],
            marker=MARKERS[index % len(MARKERS)],
            color=colour,
        )
        axes.annotate(
            f"{parameters:,} parameters",
            (own[-1].size.clients, value(own[-1])),
            xytext=(4, 8),
            textcoords="offset points",
            ha="right",
            fontsize=9,
            color=colour,
        )
    plain = StrMethodFormatter("{x:,g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(NullFormatter())


def _proportional(
    axes: Axes, found: Sequence[SetsCost], value: Callable[[SetsCost], float]
) -> None:
    """Draw what the smallest model's round would cost if all clients cost the same."""
    own = _by_model(found)[0][1]
    first, last = own[0], own[-1]
    each = value(first) / first.size.clients
    ends = first.size.clients, last.size.clients
    middle = math.sqrt(math.prod(ends))
    axes.plot(ends, [each * n for n in ends], "--", color=MISSING, linewidth=1)
    axes.annotate(
        "in proportion to clients",
        (middle, each * middle),
        xytext=(8, -8),
        textcoords="offset points",
        va="top",
        fontsize=8.5,
        color=INK,
    )


def _by_model(found: Sequence[SetsCost]) -> list[tuple[int, list[SetsCost]]]:
    """Return the rounds of each model size, by clients; the smallest model first."""
    return [
        (
            parameters,
            sorted(
                (each for each in found if each.size.parameters == parameters),
                key=lambda each: each.size.clients,
            ),
        )
        for parameters in sorted({each.size.parameters for each in found})
    ]
