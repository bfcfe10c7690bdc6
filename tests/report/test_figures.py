from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from covey import History
from covey.report.comparison_figures import front, roc_figure
from covey.report.figures import (
    FIGURES,
    accuracy_figure,
    fairness_figure,
    risk_figure,
    svg,
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


def test_a_roc_begins_at_one_accused_non_member_and_hides_no_zero():
    curve = [(1 / 400, 0.0), (1 / 40, 0.2), (1.0, 1.0)]
    curves = {"loss": curve, "lira": [(1 / 400, 0.1), (1, 1)]}
    figure = roc_figure("Cluster 0", curves, 400)
    (axes,) = figure.axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_xlim() == pytest.approx((1 / 400, 1))
    assert np.isnan(np.asarray(axes.lines[1].get_ydata(), dtype=float)[0])
    assert "guessing | loss | lira" in words(figure)
    assert svg(figure) == svg(roc_figure("Cluster 0", curves, 400))
    assert "unknown" in words(roc_figure("Cluster 1", {"loss": []}, 0))


def setting(name: str, violations: float | None, accuracy: float) -> dict[str, Any]:
    def spread(mean: float | None) -> dict[str, float | None]:
        return {"mean": mean, "deviation": None if mean is None else 0.01}

    return {
        "setting": name,
        "accuracy": spread(accuracy),
        "minority_accuracy": spread(1 - accuracy),
        "violations": spread(violations),
    }


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
def test_the_front_is_what_nothing_dominates(pairs: list[tuple[int, int]]):
    points = [(float(violations), float(accuracy)) for violations, accuracy in pairs]
    expected = [
        i
        for i, (v, a) in enumerate(points)
        if not any(w <= v and b >= a and (w, b) != (v, a) for w, b in points)
    ]
    assert sorted(front(points)) == expected
