"""The charts of a run: the same figures as the report's, as lines that grow."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from covey.base.events import RiskMeasured, RiskUnknown
from covey.base.history import History
from covey.base.names import round_number
from covey.dp.current_guarantee import Unit
from covey.report.queries import OVERALL, finish_line, utility, utility_lines

MOST_POINTS = 240
"""Points of a line that a screen can tell apart, twice over."""

MOST_ROWS = 60

Number = int | float
Point = tuple[Number, Number]


@dataclass(frozen=True, slots=True)
class Line:
    """A line, labelled where it ends.

    Attributes:
        look: the class that has its colour and dashes, such as `cluster-0`.
        band: (x, low, high) around it, where there is one.
        hollow: points that are drawn as rings: nobody may act on them.
    """

    name: str
    points: Sequence[Point]
    look: str
    band: Sequence[tuple[Number, Number, Number]] = ()
    hollow: Sequence[Point] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line, such as what half of the clients accept."""

    name: str
    value: Number


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart.

    Attributes:
        key: unique on a page.
        words: what is to be seen, for who sees no picture.
        x_range: from the first to the last value along the bottom.
        y_range: at least shown, whatever the lines are; it grows around them.
        shaded: values along the bottom that are shaded, and what that means.
        missing: why there is nothing to see; "": there is.
        first: what 0 along the bottom is called; rounds are counted from 1 for a reader.
    """

    key: str
    title: str
    words: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_range: Point
    y_range: Point
    levels: Sequence[Level] = ()
    shaded: Sequence[Number] = ()
    shaded_means: str = ""
    decimals: int = 3
    first: int = 0
    missing: str = ""

    @property
    def span(self) -> Point:
        """The lowest and the highest value that there must be room for."""
        values = [
            *self.y_range,
            *(y for line in self.lines for _, y in (*line.points, *line.hollow)),
            *(y for line in self.lines for _, *pair in line.band for y in pair),
            *(level.value for level in self.levels),
        ]
        return min(values), max(values)


@dataclass(frozen=True, slots=True)
class Table:
    """The figures of a chart; "" where a line has none.

    Attributes:
        step: only every so many-th row is there.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    step: int


def table_of(plot: Plot) -> Table:
    """Return a chart's figures, as many rows as a person reads."""
    columns = [dict(line.points) for line in plot.lines]
    bands = [{x: (low, high) for x, low, high in line.band} for line in plot.lines]
    places = sorted({x for column in columns for x in column})
    step = max(1, -(-len(places) // MOST_ROWS))
    shown = places[::-1][::step][::-1]  # the newest is always among them

    def cell(index: int, x: Number) -> str:
        if x not in columns[index]:
            return ""
        text = f"{columns[index][x]:.{plot.decimals}f}"
        if x not in bands[index]:
            return text
        low, high = bands[index][x]
        return f"{text} ({low:.{plot.decimals}f} to {high:.{plot.decimals}f})"

    rows = [[f"{x + plot.first:g}", *(cell(i, x) for i in range(len(columns)))] for x in shown]
    return Table([plot.x_label, *(line.name for line in plot.lines)], rows, step)


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """Return fewer points: of each stretch the lowest and the highest, and both ends."""
    if len(points) <= most:
        return points
    size = -(-2 * len(points) // most)
    kept: dict[Point, None] = {points[0]: None}
    for start in range(0, len(points), size):
        part = points[start : start + size]
        ends = (min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1]))
        kept |= dict.fromkeys(sorted(ends))
    kept[points[-1]] = None
    return tuple(kept)


SIZES = {"wide": (640, 300, 150), "narrow": (360, 270, 104)}
"""Width, height, and the room at the right for the names of lines."""

LEFT, TOP, BOTTOM = 46, 14, 40
LABEL_HEIGHT = 15
LETTER = 6.6


@dataclass(frozen=True, slots=True)
class Tick:
    """A value on an axis, and where it is."""

    text: str
    at: float


@dataclass(frozen=True, slots=True)
class Rule:
    """A level with its name, which stands at the right where another one is too near."""

    text: str
    at: float
    is_right: bool


@dataclass(frozen=True, slots=True)
class Label:
    """A name beside the end of its line; `lines` where it is too long for one."""

    lines: Sequence[str]
    look: str
    y: float
    from_x: float
    from_y: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A line as the path of its points, with its band and its single points."""

    look: str
    path: str
    band: str
    dots: Sequence[Point]
    rings: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart at one size; all places in the units of its `viewBox`."""

    size: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    levels: Sequence[Rule]
    curves: Sequence[Curve]
    labels: Sequence[Label]
    shades: Sequence[tuple[float, float]]


class _Axes:
    """Turns values into places."""

    def __init__(self, plot: Plot, size: str) -> None:
        self.width, self.height, room = SIZES[size]
        self.right, self.bottom = self.width - room, self.height - BOTTOM
        low, high = plot.span
        margin = 0.04 * (high - low or 1.0)
        self.low = float(low - margin if low < plot.y_range[0] else low)
        self.high = float(high + margin if high > plot.y_range[1] else high)
        self.first, self.last = plot.x_range

    def x(self, value: Number) -> float:
        share = (value - self.first) / ((self.last - self.first) or 1.0)
        return round(LEFT + share * (self.right - LEFT), 1)

    def y(self, value: Number) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.bottom - share * (self.bottom - TOP), 1)

    def at(self, point: Point) -> Point:
        return self.x(point[0]), self.y(point[1])


def drawn(plot: Plot, size: str) -> Drawing:
    """Return a chart's drawing at a size of `SIZES`."""
    axes = _Axes(plot, size)
    room = axes.width - axes.right - 12
    half = (axes.x(1) - axes.x(0)) / 2
    return Drawing(
        size=size,
        width=axes.width,
        height=axes.height,
        left=LEFT,
        right=axes.right,
        top=TOP,
        bottom=axes.bottom,
        x_ticks=[Tick(f"{v + plot.first:,.0f}", axes.x(v)) for v in _whole(axes, size)],
        y_ticks=[Tick(_text(v), axes.y(v)) for v in _steps(axes.low, axes.high, 5)],
        levels=_rules(plot, axes),
        curves=[_curve(line, axes) for line in plot.lines if line.points],
        labels=_labels(plot, axes, int(room / LETTER)),
        shades=[(axes.x(t) - half, max(1.0, 2 * half)) for t in plot.shaded],
    )


def _rules(plot: Plot, axes: _Axes) -> list[Rule]:
    rules: list[Rule] = []
    for level in sorted(plot.levels, key=lambda each: each.value):
        at = axes.y(level.value)
        is_near = bool(rules) and rules[-1].at - at < LABEL_HEIGHT
        is_right = is_near and not rules[-1].is_right
        rules.append(Rule(level.name, at, is_right))
    return rules


def _curve(line: Line, axes: _Axes) -> Curve:
    points = [axes.at(each) for each in thinned(line.points)]
    few = len(points) <= 40
    return Curve(
        look=line.look,
        path=_path(points),
        band=_band(line, axes),
        dots=points if few else points[-1:],
        rings=[axes.at(each) for each in thinned(line.hollow)],
    )


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _band(line: Line, axes: _Axes) -> str:
    if len(line.band) < 2:
        return ""
    low = [axes.at((x, a)) for x, a, _ in line.band]
    high = [axes.at((x, b)) for x, _, b in line.band]
    return _path([*thinned(high), *thinned(low)[::-1]]) + "Z"


def _labels(plot: Plot, axes: _Axes, letters: int) -> list[Label]:
    """Return the names of lines at their ends, moved apart where they would touch."""
    lines = [line for line in plot.lines if line.points]
    ends = [(axes.y(line.points[-1][1]), line) for line in lines]
    ends.sort(key=lambda end: end[0])
    texts = [
        _broken(f"{line.name} {line.points[-1][1]:.{plot.decimals}f}", letters) for _, line in ends
    ]
    places: list[float] = []
    edge = float(TOP)
    for (y, _), text in zip(ends, texts, strict=True):
        places.append(max(y, edge))
        edge = places[-1] + LABEL_HEIGHT * len(text)
    excess = max(0.0, edge - LABEL_HEIGHT - axes.bottom) if places else 0.0
    places = _pushed_up(places, [len(text) for text in texts], excess, axes)
    return [
        Label(text, line.look, place, axes.x(line.points[-1][0]), y)
        for text, place, (y, line) in zip(texts, places, ends, strict=True)
    ]


def _pushed_up(places: list[float], heights: list[int], excess: float, axes: _Axes) -> list[float]:
    """Move labels up again, where the last ones were pushed below the axes."""
    edge = float(axes.bottom + LABEL_HEIGHT) if excess else math.inf
    moved: list[float] = []
    for place, height in zip(places[::-1], heights[::-1], strict=True):
        moved.append(min(place, edge - LABEL_HEIGHT * height))
        edge = moved[-1]
    return moved[::-1]


def _broken(text: str, letters: int) -> list[str]:
    """Break a name before its last words, and cut what is longer than two lines."""
    if len(text) <= letters:
        return [text]
    head, _, value = text.rpartition(" ")
    return [head if len(head) <= letters else f"{head[: letters - 1]}…", value]


def _whole(axes: _Axes, size: str) -> list[Number]:
    found = _steps(axes.first, axes.last, 6 if size == "wide" else 4)
    return [each for each in found if each == int(each)]


def _steps(low: Number, high: Number, about: int) -> list[Number]:
    """Return round values between two, about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round((first + k) * step, 10) for k in range(count + 1)]


def _text(value: Number) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


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
        missing="" if any(line.points for line in drawn) else "no round was measured yet",
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


def epsilon_plot(spent: Mapping[Unit, Sequence[tuple[int, float]]], planned: float | None) -> Plot:
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


def _spread_over_clusters(by_cluster: Mapping[int, Sequence[RiskMeasured]]) -> list[Line]:
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
