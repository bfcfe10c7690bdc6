from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from covey import History
from covey.report.comparison_figures import front
from covey.report.figures import (
    FIGURES,
    accuracy_figure,
    fairness_figure,
    risk_figure,
    violations_figure,
)


def words(figure: Figure) -> str:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    found += [axes.get_title(loc="left") for axes in figure.axes]
    found += [text.get_text() for key in figure.legends for text in key.get_texts()]
    return " | ".join(found).replace("\n", " ")


@pytest.mark.parametrize("kind", ["two clusters", "many clusters", "not started"])
def test_every_kind_of_run_has_every_figure(histories: dict[str, History], kind: str):
    for draw in FIGURES.values():
        assert draw(histories[kind]).axes


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        ("no red team", risk_figure),
        ("unfinished", violations_figure),
        ("own data", fairness_figure),
        ("not started", accuracy_figure),
    ],
)
def test_what_is_unknown_is_said(
    histories: dict[str, History], kind: str, draw: Callable[[History], Figure]
):
    assert "unknown" in words(draw(histories[kind]))


def test_filled_points_are_the_violations(histories: dict[str, History]):
    axes = violations_figure(histories["two clusters"]).axes[0]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    filled = [line for line in points if line.get_markerfacecolor() != "white"]
    assert sum(len(np.atleast_1d(line.get_xdata())) for line in points) == 6
    assert sum(len(np.atleast_1d(line.get_xdata())) for line in filled) == 3  # h0, h1, h2


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
def test_the_front_is_what_nothing_dominates(pairs: list[tuple[int, int]]):
    points = [(float(violations), float(accuracy)) for violations, accuracy in pairs]
    expected = [
        i
        for i, (v, a) in enumerate(points)
        if not any(w <= v and b >= a and (w, b) != (v, a) for w, b in points)
    ]
    assert sorted(front(points)) == expected
