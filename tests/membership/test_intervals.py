import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from covey import Streams
from covey.membership.intervals import attack_metrics, clopper_pearson, hanley_mcneil, tpr_at

STREAMS = Streams(0)


@given(st.integers(1, 60), st.data())
def test_clopper_pearson_is_scipys(trials, data):
    hits = data.draw(st.integers(0, trials))
    theirs = binomtest(hits, trials).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, trials) == pytest.approx((theirs.low, theirs.high))


def test_hanley_mcneil_by_hand():
    # A = .5: Q1 = Q2 = 1/3, so SE^2 = (1/4 + 2 (n - 1) / 12) / n^2
    assert hanley_mcneil(0.5, 50, 50) == pytest.approx(np.sqrt((0.25 + 49 / 6) / 50**2))
    assert hanley_mcneil(1.0, 50, 50) == 0


def test_tpr_at_by_hand():
    # 1% of 1,000 non-members: ten may be accused, those above 989; ties are not above.
    others = np.arange(1000.0)
    members = np.array([989.0, 989.5, 995.0, 2000.0])
    found = tpr_at(0.01, [(members, others)])
    assert found.value == 0.75
    assert (found.low, found.high) == clopper_pearson(3, 4)


def test_each_group_has_its_own_threshold():
    # Group 2 scores 5,000 higher on both sides: a common threshold would find nobody
    # of group 1 and accuse group 2.
    others = np.arange(1000.0)
    low = (np.array([500.0, 999.0]), others)
    high = (np.array([5500.0, 5999.0]), others + 5000)
    assert tpr_at(0.01, [low, high]).value == 0.5


def test_too_few_non_members_give_no_rate():
    found = tpr_at(0.001, [(np.ones(50), np.zeros(9_999))])
    assert found.value is found.low is found.high is None
    assert "at least 10,000 non-members" in found.reason
    assert "found 9,999" in found.reason


def test_small_groups_do_not_count_and_nobody_is_not_zero():
    found = attack_metrics([(np.ones(9), np.zeros(500))], STREAMS)
    assert found.auc.value is None
    assert "fewer than 10" in found.auc.reason
    assert (found.members, found.non_members) == (9, 500)
