"""What stands beside a mean: members who are told surely, and the worst client."""

import numpy as np
import pytest

from covey.base.figure import Figure, RiskEstimate
from covey.membership.intervals import with_extremes

MEAN = RiskEstimate(Figure(0.6, 0.1))


def found_of(inside, outside) -> RiskEstimate:
    return with_extremes(MEAN, inside, outside)


def test_they_are_counted_by_hand():
    outside = np.arange(100) / 100
    told = np.full(10, 2.0)  # above every other score
    hidden = np.full(10, 0.2)
    found = found_of([told, hidden], outside)
    assert found.tpr_at_1 == 0.5
    assert found.worst_client == pytest.approx(1.0)


def test_no_more_than_one_in_a_hundred_is_accused():
    outside = np.arange(150) / 150
    between = np.array([outside[-2]] * 10 + [outside[-1]] * 10)
    found = found_of([between], outside)
    assert found.tpr_at_1 == 0.5  # two of 150 would be accused below outside[-2]


def test_scores_of_a_model_that_diverged_accuse_nobody():
    found = found_of([np.full(20, -np.inf)], np.full(100, -np.inf))
    assert found.tpr_at_1 == 0.0
    assert found.worst_client == 0.5


def test_a_guess_finds_as_many_as_it_accuses():
    draw = np.random.default_rng(0)
    found = found_of([draw.normal(size=5_000)], draw.normal(size=5_000))
    assert found.tpr_at_1 == pytest.approx(0.01, abs=0.005)
    assert found.worst_client == pytest.approx(0.5, abs=0.02)


def test_few_records_say_nothing():
    assert found_of([np.zeros(9)], np.zeros(100)) == MEAN
    assert found_of([np.zeros(20)], np.zeros(9)) == MEAN
    assert found_of([], np.zeros(100)) == MEAN
