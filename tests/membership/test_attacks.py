import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.base.figure import RiskEstimate
from covey.membership.attacks import auc, best_threshold, cross_fitted, risk_at, scores_of

# Whole numbers from a short range: many ties, and monotone maps stay exact.
scores = st.lists(st.integers(-6, 6), min_size=1, max_size=12).map(
    lambda values: np.array(values, dtype=np.float64)
)


@given(scores, scores)
def test_auc_is_the_share_of_pairs_won(members, non_members):
    won = [1.0 if m > n else 0.5 if m == n else 0.0 for m in members for n in non_members]
    assert auc(members, non_members) == pytest.approx(np.mean(won), abs=1e-12)


@given(scores, scores)
def test_no_threshold_beats_the_best_one(members, non_members):
    everywhere = np.arange(-7, 8) - 0.5
    best = max(risk_at(float(c), members, non_members).risk for c in everywhere)
    threshold = best_threshold(members, non_members)
    found = risk_at(threshold, members, non_members).risk
    assert found == pytest.approx(best, abs=1e-12)
    assert threshold in np.concatenate([members, non_members])


def test_rates_by_hand():
    # from 3 on: members 1 2 [3 4] -> 2/4; non-members [0 1 2 2] 3 -> 4/5
    members, others = np.array([1.0, 2, 3, 4]), np.array([0.0, 1, 2, 2, 3])
    rates = risk_at(3.0, members, others)
    assert rates == RiskEstimate.of_rates(0.5, 0.8, 4, 5, auc=auc(members, others))
    assert rates.risk == pytest.approx(0.65)
    # one more right and one wrong on each side, 3 of 6 and 5 of 7: 1/4 / 6 and 10/49 / 7
    assert rates.standard_error == pytest.approx(math.sqrt(1 / 24 + 10 / 343) / 2)


def test_a_perfect_attack_on_a_few_records_is_still_uncertain():
    # rates of 1 count as 11 of 12: SE = sqrt(2 * 11/12 * 1/12 / 12) / 2
    rates = RiskEstimate.of_rates(tpr=1.0, tnr=1.0, members=10, non_members=10)
    assert rates.risk == 1
    assert rates.standard_error == pytest.approx(math.sqrt(22 / 12**3) / 2)
    inverted = RiskEstimate.of_rates(tpr=0.0, tnr=0.0, members=10, non_members=10)
    assert inverted.standard_error == pytest.approx(rates.standard_error)


def test_on_pure_noise_a_cross_fitted_attack_is_a_coin_toss_and_an_in_sample_one_is_not():
    # One accuracy on 50 noisy records a side has SE sqrt(2 * 0.25 / 50) / 2 = 0.05, the
    # mean of 200 has 0.0035: beyond 4 of them with probability 6e-5. Taking the best
    # threshold on the judged records themselves gives 0.56 instead.
    fitted, biased = [], []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        members, others = generator.normal(size=(2, 50))
        fitted.append(cross_fitted(members, others, generator).risk)
        threshold = best_threshold(members, others)
        biased.append(risk_at(threshold, members, others).risk)
    assert abs(np.mean(fitted) - 0.5) < 4 * 0.0035
    assert 0.54 < np.mean(biased) < 0.59


def test_a_loss_that_is_no_number_is_the_least_member_like():
    losses = np.array([np.nan, 0.5, np.inf, 5.0])
    assert scores_of(losses).tolist() == [-np.inf, -0.5, -np.inf, -5.0]
