"""Figures, over rounds, seeds and settings, and comparisons of runs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from covey import History
from covey.report.comparison import comparison, means
from covey.report.comparison_figures import front, overlaid_accuracy
from covey.report.figures import (
    FIGURES,
    accuracy_figure,
    fairness_figure,
    risk_figure,
    violations_figure,
)
from covey.report.queries import Reported
from covey.report.summary import spread


def words(figure: Figure) -> str:
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    texts += [axes.get_title(loc="left") for axes in figure.axes]
    texts += [text.get_text() for key in figure.legends for text in key.get_texts()]
    return " | ".join(texts).replace("\n", " ")


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
def test_what_is_unknown_is_said(histories, kind, draw):
    assert "unknown" in words(draw(histories[kind]))


def test_filled_points_are_the_violations(histories: dict[str, History]):
    axes = violations_figure(histories["two clusters"]).axes[0]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    filled = [line for line in points if line.get_markerfacecolor() != "white"]
    assert sum(len(np.atleast_1d(line.get_xdata())) for line in points) == 6
    assert sum(len(np.atleast_1d(line.get_xdata())) for line in filled) == 3  # h0, h1, h2


def test_an_attack_hides_no_point_that_is_no_bound(histories: dict[str, History]):
    figure = violations_figure(histories["two clusters"])
    diamonds = [line for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert [len(np.atleast_1d(line.get_xdata())) for line in diamonds] == [0]
    assert "strongest attack" not in words(figure)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
def test_the_front_is_what_nothing_dominates(pairs: list[tuple[int, int]]):
    points = [(float(violations), float(accuracy)) for violations, accuracy in pairs]
    expected = [
        i
        for i, (v, a) in enumerate(points)
        if not any(w <= v and b >= a and (w, b) != (v, a) for w, b in points)
    ]
    assert sorted(front(points)) == expected


def drawn(runs: list[Reported]):
    labels = [run.name.rpartition("-")[0] for run in runs]
    return overlaid_accuracy(list(zip(labels, (run.history for run in runs), strict=True)))


def test_seeds_are_one_line_with_a_band_in_each_panel(two_seeds):
    figure = drawn(two_seeds)
    for axes in figure.axes:
        assert len(axes.lines) == 3
        assert len(axes.collections) == 3
    mir = figure.axes[0].lines[0]
    assert mir.get_label() == "mir"
    assert np.asarray(mir.get_ydata())[-1] == pytest.approx(0.92)  # (.90 + .94) / 2


def test_lines_differ_without_colour_and_are_named_at_their_ends_apart(two_seeds):
    for axes in drawn(two_seeds).axes:
        looks = {(line.get_linestyle(), line.get_linewidth()) for line in axes.lines}
        assert len(looks) == 3
        assert len({line.get_linewidth() for line in axes.lines}) == 3
        names = {
            text.get_text(): text.xyann[1] for text in axes.texts if isinstance(text, Annotation)
        }
        assert set(names) == {"mir", "ifca", "fedavg"}
        heights = sorted(names.values())
        assert all(b - a > 0.06 for a, b in pairwise(heights))
        assert {to_rgba(text.get_color()) for text in axes.texts} == {
            to_rgba(line.get_color()) for line in axes.lines
        }


def test_a_single_run_has_no_band_and_an_empty_one_no_line(two_seeds, histories):
    figure = overlaid_accuracy([("one", two_seeds[0].history), ("none", histories["not started"])])
    assert [len(axes.lines) for axes in figure.axes] == [1, 1]
    assert [len(axes.collections) for axes in figure.axes] == [0, 0]


def test_a_row_per_run_with_equal_keys(two_seeds: list[Reported]):
    rows = comparison(two_seeds)
    assert [row["name"] for row in rows] == [run.name for run in two_seeds]
    assert len({tuple(row) for row in rows}) == 1
    first = rows[0]
    assert (first["method"], first["selection"], first["seed"]) == ("ifca-mir", "threshold", 0)
    assert (first["accuracy_minority"], first["accuracy_majority"]) == (0.80, 0.95)
    assert (first["violations"], first["violations_lower"]) == (3, 2)  # see Plot
    assert first["true_risk_minority"] == 0.70  # the minority's home is cluster 0
    assert first["true_risk_majority_standard_error"] == 0.01
    assert rows[-1]["selection"] == ""


def test_a_row_says_why_it_lacks_figures(a_run, a_plot):
    runs = [
        a_run("a", a_plot(finished=False)),
        a_run("b", a_plot(groups=False)),
        a_run("c", a_plot(risks=(None, 0.55))),
    ]
    rows = comparison(runs)
    assert rows[0]["violations"] is None
    assert rows[0]["reason"] == "not finished"
    assert rows[1]["adjusted_rand_index"] is None
    assert rows[1]["reason"] == "the clients have no known groups"
    assert rows[2]["reason"] == "refused: they do not match"
    assert rows[2]["violations_unknown"] == 2


def test_means_over_two_seeds_by_hand(two_seeds: list[Reported]):
    mir, ifca, fedavg = means(two_seeds)
    assert mir["setting"] == "ifca-mir threshold"
    assert mir["runs"] == 2
    assert mir["accuracy"]["mean"] == pytest.approx(0.92)  # (.90 + .94) / 2
    assert mir["accuracy"]["deviation"] == pytest.approx(0.02 * 2**0.5)
    assert mir["minority_accuracy"]["mean"] == pytest.approx(0.75)  # (.80 + .70) / 2
    assert mir["violations"]["mean"] == 2.0  # 3 and 1
    # Pairs: .90 - .88 = .02 and .94 - .90 = .04.
    assert mir["minus_fedavg"]["accuracy"]["mean"] == pytest.approx(0.03)
    assert mir["minus_fedavg"]["accuracy"]["deviation"] == pytest.approx(0.01 * 2**0.5)
    # FedAvg's one model has .55 ± .02: only h2 (.50) is below. 3 - 1 and 1 - 1.
    assert mir["minus_fedavg"]["violations"]["mean"] == 1.0
    # IFCA: 3 violations each. 3 - 3 and 1 - 3.
    assert mir["minus_ifca"]["violations"]["mean"] == -1.0
    assert ifca["minus_ifca"] is None
    assert ifca["minus_fedavg"]["accuracy"]["mean"] == pytest.approx(0.02)  # .03, .01
    assert fedavg["minus_fedavg"] is None


def test_an_unknown_number_makes_its_mean_unknown(a_run, a_plot):
    runs = [a_run("a", a_plot()), a_run("b", a_plot(risks=(None, 0.55)), seed=1)]
    (row,) = means(runs)
    assert row["violations"]["mean"] is None
    assert str(spread(row["violations"])) == "unknown: unknown in 1 of 2 runs"
    assert str(spread(row["accuracy"])) == "0.900 ± 0.000"
