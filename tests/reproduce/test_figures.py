"""A panel per measure or column, the same colours in all of them."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from covey_papers.reproduce.figures import drawn
from covey_papers.reproduce.record import Findings, Line, Printed
from reproduce.tiny import cell, record

TWO_MEASURES = Findings(
    cells=(
        cell("accuracy", "FedAvg", 0.5, 0.6),
        cell("accuracy", "IFCA", 0.6, 0.8, printed=Printed(0.816, None, "Table 1")),
        cell("accuracy", "IFCA-MIR", 0.7, None),
        cell("accuracy minus FedAvg's", "IFCA", 0.1, 0.2),
        cell("accuracy minus FedAvg's", "IFCA-MIR", 0.2, 0.3),
        cell("violations", "IFCA", None, None),
        cell("accuracy", "IFCA", column="gone", reason="not played: no files"),
    )
)


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def words(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def legend(figure: Figure) -> dict[str, str]:
    """Label to colour."""
    (box,) = figure.legends
    labels = [text.get_text() for text in box.get_texts()]
    colours = [
        to_hex(each.get_facecolor()) if isinstance(each, Patch) else ""
        for each in box.legend_handles
    ]
    return dict(zip(labels, colours, strict=True))


def bars(axes: Axes) -> list[tuple[float, float, str]]:
    """Place, height and colour of each bar."""
    return [
        (bar.get_x() + bar.get_width() / 2, bar.get_height(), to_hex(bar.get_facecolor()))
        for bar in axes.patches
        if isinstance(bar, Rectangle)
    ]


def heights(axes: Axes, marker: str) -> list[list[float]]:
    """Of each line with this marker, where its points are."""
    return [
        np.asarray(line.get_ydata()).tolist() for line in axes.lines if line.get_marker() == marker
    ]


@pytest.mark.parametrize("kind", ["bars", "boxes"])
def test_every_known_measure_has_a_panel(kind):
    figure = drawn(record(figure=kind, found=TWO_MEASURES))
    assert titles(figure) == ["accuracy", "accuracy minus FedAvg's"]
    for axes in figure.axes:
        ticks = [text.get_text() for text in axes.get_xticklabels()]
        assert ticks == ["digits"]  # what was not played takes no room


def test_bars_are_means_with_repeats_intervals_and_the_papers_number():
    figure = drawn(record(found=TWO_MEASURES))
    first, second = figure.axes
    (a, fedavg, _), (b, ifca, _) = bars(first)
    assert (fedavg, ifca) == (pytest.approx(0.55), pytest.approx(0.7))
    assert a < b
    assert heights(first, "D") == [[0.816]]
    # what is known of a cell is shown, and no mean of it
    assert heights(first, ".") == [[0.5, 0.6], [0.6, 0.8], [0.7]]
    assert len(heights(first, "None")) == 2  # intervals
    assert "the paper" in legend(figure)
    assert len(bars(second)) == 2


def test_a_row_has_one_colour_the_legends():
    figure = drawn(record(found=TWO_MEASURES))
    key = legend(figure)
    assert list(key)[:3] == ["FedAvg", "IFCA", "IFCA-MIR"]
    assert len({key[row] for row in ("FedAvg", "IFCA", "IFCA-MIR")}) == 3
    first, second = map(bars, figure.axes)
    assert [colour for *_, colour in first] == [key["FedAvg"], key["IFCA"]]
    assert [colour for *_, colour in second] == [key["IFCA"], key["IFCA-MIR"]]
    assert second[0][0] == first[1][0]  # and one place beside the others


def test_a_box_is_drawn_per_cell_with_its_mean():
    figure = drawn(record(figure="boxes", found=TWO_MEASURES))
    first, second = figure.axes
    assert (len(first.patches), len(second.patches)) == (3, 2)
    assert heights(first, "D") == [[pytest.approx(mean)] for mean in (0.55, 0.7, 0.7)]
    assert "the paper" not in legend(figure)


def test_lines_have_a_panel_per_column_and_dashed_bounds():
    points = ((0.0, 0.1), (1.0, 0.5))
    lines = (
        Line("MNIST", "minority", points),
        Line("MNIST", "theorem", points, bound=True),
        Line("MNIST", "another theorem", points, bound=True),
        Line("CIFAR-10", "minority", points[:1]),
    )
    figure = drawn(record(figure="lines", found=Findings(lines=lines)))
    assert titles(figure) == ["MNIST", "CIFAR-10"]
    mnist, cifar = figure.axes
    assert [line.get_linestyle() for line in mnist.lines] == ["-", "--", ":"]
    assert (mnist.get_xlabel(), mnist.get_ylabel()) == ("round", "accuracy")
    assert heights(mnist, ".") == [[0.1, 0.5]]
    assert mnist.lines[0].get_color() == cifar.lines[0].get_color()


def test_a_front_has_a_panel_per_column_and_group_and_no_point_for_what_is_unknown():
    told = [
        cell(f"{what}, {group}", row, *values, column=column)
        for column in ("MNIST", "CIFAR-10")
        for group in ("minority", "majority")
        for row, accuracy, risk in (
            ("FedAvg", (0.4, 0.6), (0.6, 0.7)),
            ("solved", (0.7, 0.7), (0.6, 0.6)),
            ("by risk", (0.7, 0.7), (0.6, None)),
        )
        for what, values in (("accuracy", accuracy), ("MIA accuracy", risk))
    ]
    figure = drawn(record(figure="front", found=Findings(cells=tuple(told))))
    assert titles(figure) == [
        *("MNIST: minority", "MNIST: majority"),
        *("CIFAR-10: minority", "CIFAR-10: majority"),
    ]
    assert list(legend(figure)) == ["FedAvg", "solved", "by risk"]
    for axes in figure.axes:
        points = [np.ravel(line.get_xydata()) for line in axes.lines]
        assert np.allclose(points, [(0.65, 0.5), (0.6, 0.7)])


def test_without_any_value_there_is_nothing_to_draw():
    nobody = (cell("accuracy", "IFCA", None), cell("accuracy", "FedAvg"))
    assert not Findings().known
    assert not Findings(cells=nobody).known
    assert Findings(cells=(*nobody, cell("accuracy", "local", 0.5))).known


def test_rows_beyond_the_colours_are_hatched():
    cells = tuple(cell("accuracy", f"row {i}", 0.5) for i in range(7))
    (axes,) = drawn(record(figure="bars", found=Findings(cells=cells))).axes
    first, *_, last = axes.patches
    assert first.get_facecolor() == last.get_facecolor()
    assert first.get_hatch() != last.get_hatch()


def test_dots_name_every_row_and_show_repeats_interval_and_mean():
    cells = (
        cell("accuracy", "FedAvg", 0.5, 0.6),
        cell("accuracy", "IFCA", 0.7, None),
        cell("accuracy", "FedAvg", 0.1, 0.2, column="CIFAR-10"),
        cell("violations", "IFCA", 3.0, 4.0),
        cell("violations", "gone"),
    )
    figure = drawn(record(figure="dots", found=Findings(cells=cells)))
    first, second = figure.axes
    assert titles(figure) == ["accuracy", "violations"]
    assert [text.get_text() for text in first.get_yticklabels()] == ["FedAvg", "IFCA"]
    assert list(legend(figure)) == ["digits", "CIFAR-10"]
    points = [np.ravel(line.get_xdata()).tolist() for line in first.lines]
    assert [0.5, 0.6] in points  # the repeats
    assert [0.7] in points  # one of two repeats: no mean, so no large point
    assert [pytest.approx(0.55)] in points
    low, high = first.get_xlim()  # a long interval does not push the points together
    assert (low, high) == (pytest.approx(0.1 - 0.09), pytest.approx(0.7 + 0.09))
    assert len(second.lines) == 4  # the first row's mean, repeats, interval, mean
