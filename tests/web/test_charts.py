"""Charts lose no extreme, keep their names apart, and stay inside their frame."""

import re

from hypothesis import given
from hypothesis import strategies as st

from covey.web.charts import LABEL_HEIGHT, SIZES, Level, Line, Plot, drawn, table_of, thinned

VALUES = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 3))
POINTS = st.lists(VALUES, min_size=1, max_size=700).map(
    lambda values: [(float(t), value) for t, value in enumerate(values)]
)
LINES = st.lists(POINTS, min_size=1, max_size=8)


def plot(lines: list[list[tuple[float, float]]], levels: list[float] | None = None):
    return Plot(
        key="p",
        title="A plot",
        words="What is to be seen.",
        x_label="round",
        y_label="value",
        lines=[Line(f"line {i}", each, f"cluster-{i}") for i, each in enumerate(lines)],
        x_range=(0, max(1, *(len(each) - 1 for each in lines))),
        y_range=(0, 1),
        levels=[Level(f"level {value}", value) for value in levels or []],
    )


@given(points=POINTS, most=st.integers(8, 300))
def test_a_thinned_line_keeps_both_ends_and_both_extremes(
    points: list[tuple[float, float]], most: int
):
    kept = thinned(points, most)
    values = [value for _, value in points]
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert min(v for _, v in kept) == min(values)
    assert max(v for _, v in kept) == max(values)
    assert set(kept) <= set(points)
    assert list(kept) == sorted(kept)
    assert len(kept) <= max(most + 4, 0) or len(points) <= most


@given(lines=LINES, size=st.sampled_from(sorted(SIZES)))
def test_names_stand_apart_and_everything_inside(lines: list[list[tuple[float, float]]], size: str):
    found = drawn(plot(lines), size)
    tops = [label.y for label in found.labels]
    for label, above in zip(found.labels[1:], found.labels, strict=False):
        assert label.y - above.y >= LABEL_HEIGHT * len(above.lines) - 0.2
    assert sum(len(label.lines) for label in found.labels) <= 16
    assert all(y <= found.bottom + LABEL_HEIGHT for y in tops)
    for curve in found.curves:
        numbers = [float(n) for n in re.findall(r"-?[\d.]+(?:e-?\d+)?", curve.path)]
        assert all(found.left <= x <= found.right for x in numbers[::2])
        assert all(found.top <= y <= found.bottom for y in numbers[1::2])


@given(lines=LINES)
def test_the_table_has_the_newest_figures_and_not_too_many(lines: list[list[tuple[float, float]]]):
    table = table_of(plot(lines))
    longest = max(len(each) for each in lines)
    assert table.rows[-1][0] == f"{longest - 1:g}"
    assert len(table.rows) <= 60
    assert table.head == ["round", *(f"line {i}" for i in range(len(lines)))]
    for i, line in enumerate(lines):
        at = dict(line)
        for row in table.rows:
            x = float(row[0])
            assert row[1 + i] == (f"{at[x]:.3f}" if x in at else "")


def test_levels_that_touch_have_their_names_at_different_ends():
    found = drawn(plot([[(0.0, 0.0), (1.0, 1.0)]], [0.5, 0.51, 0.9]), "wide")
    assert [each.is_right for each in found.levels] == [False, True, False]
