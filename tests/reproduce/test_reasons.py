"""A reason speaks of method, or of the figures that stand beside it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import Config
from covey_papers.reproduce.specification import (
    ALIKE,
    experiments,
    non_members_reason,
    with_settings,
)
from covey_papers.reproduce.theory import bound_verdict

ACCURACY = st.floats(0.4, 1.0)
SHIFT = "distribution shift, not membership"


@pytest.mark.parametrize(
    ("matched", "pooled", "blind", "told"),
    [
        (0.51, 0.62, 0.63, SHIFT),
        (0.626, 0.64, 0.51, "distribution shift does not explain"),
        (0.626, 0.70, 0.60, "a part of the mixture's figure is distribution shift"),
        (0.50, 0.51, 0.50, "cannot be distinguished there either"),
    ],
)
def test_opposite_figures_get_opposite_reasons(matched, pooled, blind, told):
    reason = non_members_reason([matched], [pooled], [blind])
    assert told in reason
    others = {SHIFT, "does not explain", "a part of", "either"} - {told}
    assert not any(other in reason for other in others if other not in told)


@given(ACCURACY, ACCURACY, ACCURACY)
def test_the_figures_of_a_reason_are_the_measured_ones(matched, pooled, blind):
    reason = non_members_reason([matched, matched], [pooled, pooled], [blind, blind])
    told = [float(each) for each in re.findall(r"\d\.\d{3}", reason)]
    assert told == pytest.approx([matched, pooled, blind], abs=6e-4)
    assert (SHIFT in reason) <= (blind >= pooled - ALIKE)


def test_an_unknown_figure_leaves_no_reason():
    assert "unknown" in non_members_reason([0.6, None], [0.6, 0.6], [0.5, 0.5])
    assert "unknown" in non_members_reason([], [], [])


def test_settings_in_a_text_are_those_of_the_run():
    text = "{train.batch_size} images for {rounds} rounds"
    config = Config.of({"rounds": 7, "train": {"batch_size": 3}})
    assert with_settings(text, config) == "3 images for 7 rounds"


@pytest.mark.parametrize(("name", "asked"), experiments().items())
def test_an_experiments_texts_state_no_figure_that_could_be_measured(name, asked):
    config = Config()
    for text in asked.why.values():
        assert with_settings(text, config)
        # 0.626 or "near 0.5": only a measured figure has a decimal point
        assert not re.search(r"\d\.\d", text)
    assert with_settings(asked.shows, config)


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([True, True], "never above"),
        ([True, False], "ABOVE"),
        ([None, False], "ABOVE"),
        ([True, None], "not judged"),
        ([None], "not judged"),
    ],
)
def test_a_bound_that_was_not_tried_did_not_hold(runs, told):
    assert told in bound_verdict(runs)
