import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from covey import Streams
from covey.membership.attacks import auc
from covey.membership.intervals import attack_metrics, clopper_pearson, hanley_mcneil, roc, tpr_at

STREAMS = Streams(0)


@given(st.integers(1, 60), st.data())
def test_clopper_pearson_is_scipys(trials: int, data: st.DataObject):
    hits = data.draw(st.integers(0, trials))
    theirs = binomtest(hits, trials).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, trials) == pytest.approx((theirs.low, theirs.high))


def test_clopper_pearson_covers():
    # Exact: every share lies inside for at least 95% of what it brings about.
    for p in (0.01, 0.2, 0.5):
        inside = [
            binom.pmf(k, 40, p)
            for k in range(41)
            if clopper_pearson(k, 40)[0] <= p <= clopper_pearson(k, 40)[1]
        ]
        assert sum(inside) >= 0.95


def test_hanley_mcneil_by_hand_and_over_repetitions():
    # A = .5: Q1 = Q2 = 1/3, so SE^2 = (1/4 + 2 (n - 1) / 12) / n^2
    n = 50
    expected = np.sqrt((0.25 + (n - 1) / 6) / n**2)
    assert hanley_mcneil(0.5, n, n) == pytest.approx(expected)
    draw = np.random.default_rng(0)
    areas = [auc(draw.normal(size=n) + 1, draw.normal(size=n)) for _ in range(400)]
    # The deviation of 400 draws is known to 3.5%.
    assert np.std(areas) == pytest.approx(hanley_mcneil(0.76, n, n), rel=0.15)
    assert hanley_mcneil(1.0, n, n) == 0


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


def test_the_roc_runs_from_one_non_member_to_everybody():
    draw = np.random.default_rng(0)
    sides = [(draw.normal(size=80) + 1, draw.normal(size=200))]
    curve = np.array(roc(sides))
    assert curve[0, 0] == pytest.approx(1 / 200)
    assert curve[-1].tolist() == [1, 1]
    assert (np.diff(curve, axis=0) >= 0).all()
    assert roc([]) == ()


def noise(seed: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=200) + shift, draw.normal(size=200)


def test_a_verdict_averages_the_groups_by_their_members():
    strong, weak = noise(0, 2.0), noise(1, 0.0)
    half = weak[0][:100], weak[1]
    whole = attack_metrics([strong, half], STREAMS)
    one, two = attack_metrics([strong], STREAMS), attack_metrics([half], STREAMS)
    assert one.auc.value is not None
    assert two.auc.value is not None
    expected = (2 * one.auc.value + two.auc.value) / 3
    assert whole.auc.value == pytest.approx(expected)
    assert (whole.members, whole.non_members) == (300, 400)


def test_intervals_cover_in_95_of_100_draws():
    # 100 draws: SE of a coverage of .95 is .022; 3.3 of them.
    # N(1, 1) against N(0, 1): AUC Phi(1 / sqrt 2) = .760; best accuracy Phi(1/2) = .691.
    for shift, accuracy, area in ((0.0, 0.5, 0.5), (1.0, 0.6915, 0.7602)):
        found = [attack_metrics([noise(seed, shift)], STREAMS) for seed in range(100)]
        for truth, estimates in (
            (accuracy, [each.balanced_accuracy for each in found]),
            (area, [each.auc for each in found]),
        ):
            covered = [(e.low or 0) < truth < (e.high or 1) for e in estimates]
            assert np.mean(covered) > 0.95 - 3.3 * 0.022


def test_small_groups_do_not_count_and_nobody_is_not_zero():
    found = attack_metrics([(np.ones(9), np.zeros(500))], STREAMS)
    assert found.auc.value is None
    assert "fewer than 10" in found.auc.reason
    assert (found.members, found.non_members) == (9, 500)
