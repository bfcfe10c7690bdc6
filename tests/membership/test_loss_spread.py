"""LT-IQR by hand, and what holds of it for any losses."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.record_risk import precision_at
from covey.membership.references import loss_drop, loss_spread

LOSSES = arrays(np.float64, (5, 8), elements=st.floats(0, 16, allow_nan=False, width=16))


def test_the_spread_by_hand():
    # quartiles of 0, 1, 2, 3, 4 are 1 and 3; of 4, 4, 0, 0 (sorted 0, 0, 4, 4) 0 and 4
    losses = np.array([[4.0, 3.0, 2.0, 1.0, 0.0], [4.0, 4.0, 0.0, 0.0, np.nan]])
    np.testing.assert_allclose(loss_spread(losses), [2.0, 4.0])
    np.testing.assert_allclose(loss_spread(losses[:1], (0.0, 1.0)), [4.0])


@given(LOSSES)
def test_a_round_that_nobody_saw_says_nothing(losses):
    unseen = np.hstack([losses, np.full((5, 1), np.nan)])
    np.testing.assert_array_equal(loss_spread(unseen), loss_spread(losses))


def test_the_drop_by_hand():
    # the upper quartile of 0, 1, 2, 3, 4 is 3, of 4, 4, 0, 0 it is 4, and nothing is seen
    nan = np.nan
    losses = np.array([[4.0, 3.0, 2.0, 1.0, 0.0], [4.0, 4.0, 0.0, 0.0, nan], [nan] * 5])
    drop = loss_drop(losses, np.array([0.5, 6.0, 0.0]))
    np.testing.assert_allclose(drop, [2.5, -2.0, nan])


def test_precision_by_hand():
    # of the two highest of eight (a quarter) one is vulnerable; of the highest, that one
    scores = np.array([0.0, 9.0, 1.0, 8.0, 2.0, 3.0, 4.0, 5.0])
    vulnerable = np.isin(np.arange(8), [3, 0])
    assert precision_at(scores, vulnerable, 0.25) == 0.5
    assert precision_at(-scores, vulnerable, 0.01) == 1.0
