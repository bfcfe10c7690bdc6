"""A panel per measure or column, the same colours in all of them."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from covey_papers.reproduce.figures import drawn
from covey_papers.reproduce.record import Found
from reproduce.tiny import cell, record


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
    figure = drawn(record(figure="front", found=Found(cells=tuple(told))))
    assert titles(figure) == [
        *("MNIST: minority", "MNIST: majority"),
        *("CIFAR-10: minority", "CIFAR-10: majority"),
    ]
    assert list(legend(figure)) == ["FedAvg", "solved", "by risk"]
    for axes in figure.axes:
        points = [np.ravel(line.get_xydata()) for line in axes.lines]
        assert np.allclose(points, [(0.65, 0.5), (0.6, 0.7)])
