"""Where everything in a chart lies, at one size: a template only writes it down."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from covey.web.charts.plot import Line, Number, Plot, Point, thinned

__all__ = ["SIZES", "Drawing", "drawn"]

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
        _broken(f"{line.name} {line.points[-1][1]:.{plot.decimals}f}", letters)
        for _, line in ends
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


def _pushed_up(
    places: list[float], heights: list[int], excess: float, axes: _Axes
) -> list[float]:
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
