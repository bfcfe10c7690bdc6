from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from covey import History
from covey.base.events import PricesSet
from covey.base.history import with_entries
from covey.report.comparison_figures import front, overlaid_accuracy, pareto_figure, roc_figure
from covey.report.figures import (
    FIGURES,
    accuracy_figure,
    clusters_figure,
    fairness_figure,
    prices_figure,
    risk_figure,
    samples_figure,
    svg,
    violations_figure,
)


def words(figure: Figure) -> str:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    found += [axes.get_title(loc="left") for axes in figure.axes]
    found += [text.get_text() for key in figure.legends for text in key.get_texts()]
    return " | ".join(found).replace("\n", " ")


def test_every_kind_of_run_has_every_figure(any_history: History):
    for draw in FIGURES.values():
        assert draw(any_history).axes


def test_a_baseline_is_dashed_and_named(histories: dict[str, History]):
    figure = accuracy_figure(histories["two clusters"], histories["one cluster"])
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert len(dashed) == 3
    assert "FedAvg, minority 0.800" in words(figure)


def test_accuracy_ends_with_the_final_choice(histories: dict[str, History]):
    line = accuracy_figure(histories["two clusters"]).axes[0].lines[0]
    assert np.asarray(line.get_xdata()).tolist() == [0, 1, 2, 3]
    assert np.asarray(line.get_ydata())[-1] == 0.9


def test_withheld_figures_and_blind_rounds_are_marked(histories: dict[str, History]):
    said = words(risk_figure(histories["two clusters"]))
    assert "withheld" in said
    assert "clients chose without a figure" in said


def test_many_clusters_are_summarised_and_it_says_so(histories: dict[str, History]):
    assert "40 clusters" in words(risk_figure(histories["many clusters"]))
    assert "40 clusters" in words(clusters_figure(histories["many clusters"]))


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


def test_the_same_label_has_one_colour(histories: dict[str, History]):
    pair = [("mir", histories["two clusters"]), ("mir", histories["own data"])]
    figure = overlaid_accuracy([*pair, ("$x_", histories["one cluster"])])
    colours = [line.get_color() for line in figure.axes[0].lines]
    assert colours[0] == colours[1] != colours[2]


def test_hostile_names_can_be_drawn(histories: dict[str, History]):
    once, again = (
        overlaid_accuracy([(r"_$\frac{$<b>", histories["two clusters"])]) for _ in range(2)
    )
    assert svg(once) == svg(again)


def test_samples_of_both_kinds_of_images():
    grey = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    colour = torch.zeros(20, 3, 8, 8, dtype=torch.uint8)
    figure = samples_figure({"minority": grey, "majority": colour})
    dark = [(np.asarray(axes.images[0].get_array()) == 0) for axes in figure.axes]
    assert [int(pixels[..., 0].sum()) for pixels in dark] == [3 * 64, 8 * 64]
    assert all((pixels[..., :1] == pixels).all() for pixels in dark)


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


def test_the_front_by_hand():
    # (2, .5) has as many violations as (2, .6); (4, .6) as much accuracy, and more
    points = [(4.0, 0.6), (2.0, 0.6), (2.0, 0.5), (9.0, 0.9), (1.0, 0.1), (2.0, 0.6)]
    assert sorted(front(points)) == [1, 3, 4, 5]
    assert front([]) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
def test_the_front_is_what_nothing_dominates(pairs: list[tuple[int, int]]):
    points = [(float(violations), float(accuracy)) for violations, accuracy in pairs]
    expected = [
        i
        for i, (v, a) in enumerate(points)
        if not any(w <= v and b >= a and (w, b) != (v, a) for w, b in points)
    ]
    assert sorted(front(points)) == expected


def test_settings_on_the_front_are_filled_in_each_panel():
    rows = [setting("fedavg", 5.0, 0.6), setting("ifca", 9.0, 0.5), setting("lost", None, 0.9)]
    figure = pareto_figure(rows)
    assert "fedavg | ifca | lost" in words(figure)
    faces = [
        [bar.lines[0].get_markerfacecolor() for bar in axes.containers]  # pyright: ignore
        for axes in figure.axes
    ]
    assert [[face != "white" for face in panel] for panel in faces] == [
        [True, False],
        [True, True],  # the second serves the minority better
    ]
    assert "unknown" in words(pareto_figure(rows[2:]))
    assert b"unknown" in svg(pareto_figure([]))


def test_prices_are_drawn_beside_the_shares(histories: dict[str, History]):
    fact = PricesSet((0.25, 0.0), (0.1, 0.9), 0.2)
    figure = prices_figure(with_entries(histories["two clusters"], [(2, [fact])]))
    assert "cluster 0 | cluster 1 | target 0.2" in words(figure)
    assert figure.axes[0].lines[0].get_ydata() == [0.25]
    assert "no prices" in words(prices_figure(histories["two clusters"]))
