"""LT-IQR by hand, and what holds of it for any losses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy import ndarray

from benchmarks.record_risk import precision_at
from covey.membership.references import loss_drop, loss_spread, top_share

LOSSES = arrays(np.float64, (5, 8), elements=st.floats(0, 16, allow_nan=False, width=16))


def test_the_spread_by_hand():
    # quartiles of 0, 1, 2, 3, 4 are 1 and 3; of 4, 4, 0, 0 (sorted 0, 0, 4, 4) 0 and 4
    losses = np.array([[4.0, 3.0, 2.0, 1.0, 0.0], [4.0, 4.0, 0.0, 0.0, np.nan]])
    np.testing.assert_allclose(loss_spread(losses), [2.0, 4.0])
    np.testing.assert_allclose(loss_spread(losses[:1], (0.0, 1.0)), [4.0])


def test_a_record_that_was_never_seen_has_none_and_is_last():
    losses = np.array([[np.nan, np.nan], [np.inf, np.nan], [1.0, 1.0]])
    spread = loss_spread(losses)
    assert np.isnan(spread[:2]).all()
    assert spread[2] == 0
    assert top_share(spread, 0.3).tolist() == [False, False, True]


@given(LOSSES, st.integers(-64, 64))
def test_a_shift_of_all_losses_changes_nothing(losses: ndarray, by: int):
    np.testing.assert_allclose(loss_spread(losses + by), loss_spread(losses), atol=1e-9)


@given(LOSSES, st.sampled_from([0.25, 2.0, 8.0]))
def test_losses_in_another_unit_spread_in_that_unit(losses: ndarray, unit: float):
    np.testing.assert_allclose(loss_spread(losses * unit), loss_spread(losses) * unit, atol=1e-9)


@given(LOSSES, st.permutations(range(8)), st.permutations(range(5)))
def test_order_says_nothing(losses: ndarray, rounds: list[int], records: list[int]):
    np.testing.assert_allclose(loss_spread(losses[:, rounds]), loss_spread(losses))
    np.testing.assert_array_equal(loss_spread(losses[records]), loss_spread(losses)[records])


@given(LOSSES)
def test_a_round_that_nobody_saw_says_nothing(losses: ndarray):
    unseen = np.hstack([losses, np.full((5, 1), np.nan)])
    np.testing.assert_array_equal(loss_spread(unseen), loss_spread(losses))


def test_precision_by_hand():
    # of the two highest of eight (a quarter) one is vulnerable; of the highest, that one
    scores = np.array([0.0, 9.0, 1.0, 8.0, 2.0, 3.0, 4.0, 5.0])
    vulnerable = np.zeros(8, dtype=bool)
    vulnerable[[3, 0]] = True
    assert precision_at(scores, vulnerable, 0.25) == 0.5
    assert precision_at(scores, vulnerable, 0.01) == 0.0
    assert precision_at(-scores, vulnerable, 0.01) == 1.0


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.5, 2), (1.0, 4)])
def test_a_share_is_one_record_at_the_least(share: float, count: int):
    assert top_share(np.arange(4.0), share).sum() == count


def test_the_drop_by_hand():
    # the upper quartile of 0, 1, 2, 3, 4 is 3, of 4, 4, 0, 0 it is 4, and nothing is seen
    nan = np.nan
    losses = np.array([[4.0, 3.0, 2.0, 1.0, 0.0], [4.0, 4.0, 0.0, 0.0, nan], [nan] * 5])
    drop = loss_drop(losses, np.array([0.5, 6.0, 0.0]))
    np.testing.assert_allclose(drop, [2.5, -2.0, nan])


@given(LOSSES, st.permutations(range(8)))
def test_a_record_that_got_easier_dropped_by_so_much_more(losses: ndarray, rounds: list[int]):
    last, easier = losses[:, -1], np.arange(5.0)
    dropped = loss_drop(losses[:, rounds], last - easier)
    np.testing.assert_allclose(dropped, loss_drop(losses, last) + easier, atol=1e-9)
