import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from covey import Streams
from covey.base.figure import Figure, RiskEstimate
from covey.membership.intervals import (
    attack_metrics,
    auc_figure,
    clopper_pearson,
    hanley_mcneil,
    tpr_at,
    with_extremes,
)

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
    # Of 1,000 above a true threshold with a chance of 1%, 4 to 17 are above it with 95%:
    # it may be above 996, which 1 member exceeds, and 982, which all do.
    assert (found.low, found.high) == (clopper_pearson(1, 4)[0], clopper_pearson(4, 4)[1])


def ends(figure: Figure) -> tuple[float, float]:
    assert figure.low is not None
    assert figure.high is not None
    return figure.low, figure.high


def test_an_area_of_one_still_has_an_interval_by_hand():
    # 1 - theta = 1.96 SE(theta), and one record a side more makes it narrower
    found = auc_figure([(np.arange(10.0) + 10, np.arange(10.0))])
    assert (found.value, found.error, found.high) == (1.0, 0.0, 1.0)
    low, _ = ends(found)
    assert 1 - low == pytest.approx(1.96 * hanley_mcneil(low, 10, 10), rel=1e-4)


@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_an_area_lies_within_its_interval_and_is_mirrored_with_its_sides(seed, apart):
    draw = np.random.default_rng(seed)
    inside, outside = draw.normal(apart, 1, 20), draw.normal(0, 2, 30)
    found, mirrored = auc_figure([(inside, outside)]), auc_figure([(outside, inside)])
    low, high = ends(found)
    assert low <= float(found) <= high
    assert ends(mirrored) == pytest.approx((1 - high, 1 - low))
    assert found.error == pytest.approx(mirrored.error)


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


MEAN = RiskEstimate(Figure(0.6, 0.1))


def found_of(inside, outside) -> RiskEstimate:
    return with_extremes(MEAN, inside, outside)


def test_who_is_told_surely_and_the_worst_client_by_hand():
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
