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
    found = found_of([told, np.full(10, 0.2)], outside)
    assert (found.tpr_at_1, found.worst_client) == (0.5, pytest.approx(1.0))
    # no more than one in a hundred is accused: two of 150 would be below outside[-2]
    outside = np.arange(150) / 150
    between = np.array([outside[-2]] * 10 + [outside[-1]] * 10)
    assert found_of([between], outside).tpr_at_1 == 0.5


def test_scores_of_a_model_that_diverged_accuse_nobody_and_few_records_say_nothing():
    found = found_of([np.full(20, -np.inf)], np.full(100, -np.inf))
    assert (found.tpr_at_1, found.worst_client) == (0.0, 0.5)
    for inside, outside in (([np.zeros(9)], 100), ([np.zeros(20)], 9), ([], 100)):
        assert found_of(inside, np.zeros(outside)) == MEAN
