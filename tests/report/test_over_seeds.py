"""Figures over several seeds and settings: lines that can be told apart, and their tables."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.text import Annotation

from covey.report.comparison_figures import overlaid_accuracy
from covey.report.queries import Reported


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
