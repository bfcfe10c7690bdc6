"""How much clients enter heads, where their own risk decides it."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from covey.history import History
from covey.report.figures.style import (
    CLUSTERS,
    GROUPS,
    INK,
    MISSING,
    Picture,
    canvas,
    cycled,
    key,
    legend,
    quiet,
    say,
)

__all__ = ["own_risk_figure", "weights_figure"]


def weights_figure(history: History) -> Figure:
    """Draw every client's weight, and its own risk, over the risk that it accepts.

    Read off it what accepting less costs: below the risk of its cluster's head a client
    enters with less than its whole weight. No point is above the dashed line: nobody's
    risk is above what it accepts.
    """
    figure = Picture(figsize=(8.0, 3.8), layout="constrained")
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    quiet(left, "Weight", "weight", "accepted risk")
    quiet(right, "Own risk", "risk, likelihood ratio", "accepted risk")
    chosen, taus = history.weights_chosen, {}
    if history.started is not None:
        taus = history.started.risk_thresholds
    places = [h for h in history.assignment if h in taus]
    if chosen is None or not places:
        say(left, "no weight was chosen by risk")
        return figure
    known = [h for h in places if h in chosen.weights]
    colours = {h: cycled(CLUSTERS, history.assignment[h]) for h in known}
    for axes, of in ((left, chosen.weights), (right, chosen.risks)):
        axes.scatter(
            [taus[h] for h in known],
            [of[h] for h in known],
            s=22,
            c=[colours[h] for h in known],
        )
    along = sorted(taus[h] for h in known)
    most = [max(0.5, tau) for tau in along]
    right.plot(along, most, color=INK, linestyle="--", linewidth=1)
    clusters = sorted({history.assignment[h] for h in known})
    legend(figure, [key("o", f"cluster {j}", cycled(CLUSTERS, j)) for j in clusters])
    return figure


def own_risk_figure(
    points: Sequence[Mapping[str, float]], weight: float, accepted: float | None
) -> Figure:
    """Draw one client's risk over its weight, by both attacks.

    Args:
        points: of the curve, in the order of their weights.
        weight: the client's own.
        accepted: the risk that it accepts; None: it is not known.
    """
    figure, axes = canvas(3.2)
    quiet(axes, "Risk against weight", "risk", "weight")
    weights = [each["weight"] for each in points]
    for name, colour in (
        ("likelihood_ratio", GROUPS[0]),
        ("loss_threshold", GROUPS[1]),
    ):
        risks = [each[name] for each in points]
        axes.plot(
            weights, risks, marker=".", color=colour, label=name.replace("_", " ")
        )
    axes.axvline(weight, color=MISSING, linestyle="--", linewidth=1, label="its weight")
    if accepted is not None:
        axes.axhline(accepted, color=INK, linestyle=":", linewidth=1, label="accepted")
    legend(figure, axes.get_legend_handles_labels()[0])
    return figure
