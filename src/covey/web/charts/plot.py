"""What a chart shows, before anybody knows how large it is."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Level", "Line", "Number", "Plot", "Point", "Table", "table_of", "thinned"]

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

    rows = [
        [f"{x + plot.first:g}", *(cell(i, x) for i in range(len(columns)))]
        for x in shown
    ]
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
