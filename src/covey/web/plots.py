"""The charts of a run: the same figures as the report's, as lines that grow."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, quantiles

from covey.dp.guarantee import Unit
from covey.events import RiskMeasured, RiskUnknown
from covey.history import History
from covey.report import OVERALL, utility, utility_lines
from covey.report.queries import finish_line
from covey.types import round_number
from covey.web.charts import Level, Line, Plot, Point

__all__ = [
    "MOST_CLUSTERS",
    "accuracy_plot",
    "compared_accuracy",
    "epsilon_plot",
    "moves_plot",
    "risk_plot",
    "sizes_plot",
]

MOST_CLUSTERS = 8
"""Lines that a person can tell apart; more clusters are summarised, as in the report."""


def accuracy_plot(history: History) -> Plot:
    """Return accuracy on unseen data per round, overall and by group."""
    drawn = [
        Line(name, points, "all" if name == OVERALL else f"group-{(i - 1) % 6}")
        for i, (name, points) in enumerate(utility_lines(history).items())
    ]
    name = utility(history).name
    return Plot(
        key="accuracy",
        title=f"{name.capitalize()} on unseen data",
        words=f"{name.capitalize()} per round, of all clients and of each group. A mean "
        "can hide a group that is left behind.",
        x_label="round",
        first=round_number(0),
        y_label=name,
        lines=drawn,
        x_range=_rounds(history),
        y_range=_y_range(drawn, 0.0, _most(name)),
        missing=""
        if any(line.points for line in drawn)
        else "no round was measured yet",
    )


def risk_plot(history: History) -> Plot:
    """Return each cluster's measured risk, with a band of one standard error either way."""
    clusters = sorted({each.cluster for each in history.measured})
    many = len(clusters) > MOST_CLUSTERS
    by_cluster = {j: [m for m in history.measured if m.cluster == j] for j in clusters}
    lines = (
        _spread_over_clusters(by_cluster)
        if many
        else [_risk_line(j, own) for j, own in by_cluster.items()]
    )
    blind = [t for t, event in history.notable if isinstance(event, RiskUnknown)]
    return Plot(
        key="risk",
        title="Measured risk per cluster",
        words="The chance that an attacker who sees a cluster's model tells a training "
        "record from a new one; 0.5 is a coin. Bands are one standard error either way; "
        "rings are figures that nobody may act on. Dashed: what clients accept.",
        x_label="round",
        first=round_number(0),
        y_label="MIA accuracy",
        lines=lines,
        x_range=_rounds(history),
        y_range=(0.48, 0.62),
        levels=[Level("0.5: a coin", 0.5), *_accepted(history)],
        shaded=blind,
        shaded_means="clients chose without a figure" if blind else "",
        missing=""
        if any(line.points or line.hollow for line in lines)
        else "no red team has looked at this run yet",
    )


def sizes_plot(history: History) -> Plot:
    """Return how many clients sit in each cluster, by their latest choice."""
    rows = history.rounds
    number = max((len(row.clients) for row in rows), default=0)
    lines = [
        Line(f"cluster {j}", [(r.round_index, r.clients[j]) for r in rows], _cluster(j))
        for j in range(number)
    ]
    if number > MOST_CLUSTERS:
        used = [(r.round_index, sum(1 for n in r.clients if n)) for r in rows]
        largest = [(r.round_index, max(r.clients)) for r in rows]
        lines = [
            Line("clients in the largest cluster", largest, "cluster-0"),
            Line("clusters in use", used, "cluster-1"),
        ]
    return Plot(
        key="sizes",
        title="Clients per cluster",
        words="How many clients sit in each cluster by their latest choice.",
        x_label="round",
        first=round_number(0),
        y_label="clients",
        lines=lines,
        x_range=_rounds(history),
        y_range=(0, 1),
        decimals=0,
        missing="" if rows else "no round has been played yet",
    )


def moves_plot(history: History) -> Plot:
    """Return how many of a round's clients chose another cluster than before."""
    points = [(row.round_index, row.moved) for row in history.rounds]
    return Plot(
        key="moves",
        title="Clients that moved",
        words="How many of a round's clients chose another cluster than the last time.",
        x_label="round",
        first=round_number(0),
        y_label="clients",
        lines=[Line("moved", points, "all")],
        x_range=_rounds(history),
        y_range=(0, 1),
        decimals=0,
        missing="" if points else "no round has been played yet",
    )


def epsilon_plot(
    spent: Mapping[Unit, Sequence[tuple[int, float]]], planned: float | None
) -> Plot:
    """Return what all releases so far cost together, after so many merges."""
    known = {unit: [(0, 0.0), *points] for unit, points in spent.items() if points}
    last = max((points[-1][0] for points in known.values()), default=1)
    return Plot(
        key="epsilon",
        title="Epsilon spent",
        words="What all releases so far cost together. Rounds that were rolled back "
        "count: what they released stays released.",
        x_label="merges",
        y_label="epsilon",
        lines=[
            Line(f"of a {unit}", points, _cluster(i))
            for i, (unit, points) in enumerate(known.items())
        ],
        x_range=(0, max(1, last)),
        y_range=(0, 0.1),
        levels=[Level("asked for", planned)] if planned else [],
        missing="" if known else "nothing is guaranteed",
    )


def compared_accuracy(runs: Sequence[tuple[str, History]], group: str = "") -> Plot:
    """Return two runs' accuracy in one chart: of all clients, or of a group."""
    name = group or OVERALL
    good = " or ".join(dict.fromkeys(utility(history).name for _, history in runs))
    lines = [
        Line(label, utility_lines(history).get(name, []), f"group-{i % 6}")
        for i, (label, history) in enumerate(runs)
    ]
    return Plot(
        key="group" if group else "accuracy",
        title=f"{good.capitalize()}, {name}",
        words=f"{good.capitalize()} per round of each run, on unseen data.",
        x_label="round",
        first=round_number(0),
        y_label=good,
        lines=lines,
        x_range=(0, max((_rounds(h)[1] for _, h in runs), default=1)),
        y_range=_y_range(lines, 0.0, _most(good)),
        missing="" if any(line.points for line in lines) else "nothing was measured",
    )


def _risk_line(cluster: int, measured: Iterable[RiskMeasured]) -> Line:
    known = [(m.round_index, m.risk, m) for m in measured if m.risk is not None]
    acted = [(t, risk, m.standard_error) for t, risk, m in known if m.calibrated]
    return Line(
        f"cluster {cluster}",
        [(t, risk) for t, risk, _ in acted],
        _cluster(cluster),
        band=[(t, r - se, r + se) for t, r, se in acted if se is not None],
        hollow=[(t, risk) for t, risk, m in known if not m.calibrated],
    )


def _spread_over_clusters(
    by_cluster: Mapping[int, Sequence[RiskMeasured]],
) -> list[Line]:
    """Return the spread over clusters instead of each: forty lines tell nothing."""
    found: dict[int, list[float]] = {}
    for own in by_cluster.values():
        for each in own:
            if each.risk is not None:
                found.setdefault(each.round_index, []).append(each.risk)
    rounds = sorted(found)
    middle = [(t, median(found[t])) for t in rounds]
    band = [(t, min(found[t]), max(found[t])) for t in rounds]
    return [Line("median; band: all clusters", middle, "cluster-0", band=band)]


def _accepted(history: History) -> list[Level]:
    """Return what clients accept: the most careful one, a quarter of them, and half."""
    taus = history.started.risk_thresholds.values() if history.started else ()
    if len(taus) < 4:
        return [Level("lowest accepted", min(taus))] if taus else []
    low, half, _ = quantiles(taus)
    levels = [
        Level("lowest accepted", min(taus)),
        Level("a quarter accept less", low),
        Level("half accept less", half),
    ]
    return [each for i, each in enumerate(levels) if each.value not in
            [other.value for other in levels[:i]]]  # fmt: skip


def _y_range(lines: Sequence[Line], low: float, high: float) -> Point:
    """Return a range around what is drawn, with a tenth at least, within two bounds."""
    values = [y for line in lines for _, y in line.points]
    if not values:
        return low, min(high, 1.0)
    least, most = min(values), max(values)
    return max(low, least - 0.05), min(high, max(most + 0.02, least + 0.1))


def _most(utility_name: str) -> float:
    """Return the upper bound of a utility: an accuracy's is 1, an error has none."""
    return 1.0 if utility_name == "accuracy" else math.inf


def _rounds(history: History) -> Point:
    return 0, max(1, finish_line(history))


def _cluster(index: int) -> str:
    return f"cluster-{index % MOST_CLUSTERS}"
