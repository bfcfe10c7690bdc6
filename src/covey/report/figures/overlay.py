"""Several runs in one picture."""

from collections.abc import Sequence
from typing import Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from covey.components.built_ins import BASELINE
from covey.history import History
from covey.report.figures.style import (
    CLUSTERS,
    INK,
    Picture,
    cycled,
    legend,
    lettering,
    quiet,
    say,
    whole_rounds,
)
from covey.report.queries import (
    OVERALL,
    finish_line,
    group_sizes,
    utility,
    utility_lines,
)

__all__ = ["overlaid_accuracy"]

Dash = Literal["-", "--", ":", "-."]
DASHES: tuple[Dash, ...] = ("-", ":", "-.")


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
            dash = DASHES[others // len(CLUSTERS) % len(DASHES)]
            looks[label] = (cycled(CLUSTERS, others), dash)
            others += 1
    return looks
