"""How the cost of anonymity sets grows with the clients of a round."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.report.figures import GROUPS, cycled, legend, quiet
from covey_papers.bench.anonymity_scale import SetsCost

__all__ = ["sets_growth_figure"]


def sets_growth_figure(found: Sequence[SetsCost]) -> Figure:
    """Draw processor seconds and peak memory against clients, a line per model size."""
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    quiet(left, "Sets and their representatives", "processor seconds", "clients")
    _lines(left, found, lambda each: each.seconds)
    quiet(right, "Peak memory of the process", "GB", "clients")
    _lines(right, found, lambda each: each.peak_bytes / 1e9)
    legend(figure, left.get_lines())
    return figure


def _lines(
    axes: Axes, found: Sequence[SetsCost], value: Callable[[SetsCost], float]
) -> None:
    models = sorted({each.size.parameters for each in found})
    for index, parameters in enumerate(models):
        own = [each for each in found if each.size.parameters == parameters]
        own.sort(key=lambda each: each.size.clients)
        axes.loglog(
            [each.size.clients for each in own],
            [value(each) for each in own],
            marker="o",
            color=cycled(GROUPS, index),
            label=f"{parameters:,} parameters",
        )
