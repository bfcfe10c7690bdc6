"""Intervals of fitted thresholds hold what a large audit of the same model finds."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from covey.base.figure import RiskEstimate
from covey.membership.attacks import cross_fitted
from covey.membership.estimators import combined_counts, loss_counts, risk_of_counts
from covey.membership.intervals import auc_figure, tpr_at


def rates_by_counts(apart: float, generator: np.random.Generator):
    """Rates of four clients with 48 members and 12 held-out examples each."""
    inside, outside = (
        [loss_counts(np.exp(generator.normal(-mean, 1, size)), generator) for _ in range(4)]
        for mean, size in ((apart, 48), (0.0, 12))
    )
    return risk_of_counts(*combined_counts(inside, outside))


def rates_by_scores(apart: float, generator: np.random.Generator):
    """The same where every score is at hand."""
    inside = generator.normal(apart, 1, 4 * 48)
    outside = generator.normal(0, 1, 4 * 12)
    return cross_fitted(inside, outside, generator)


@pytest.mark.parametrize("rates", [rates_by_counts, rates_by_scores])
@pytest.mark.parametrize("apart", [0.05, 1.0])
def test_intervals_cover_the_risk_of_the_best_threshold(rates, apart):
    # Between N(0, 1) and N(apart, 1) the best threshold is right with Phi(apart / 2).
    # 200 draws: SE of a share of 0.95 is 0.0154, of which 0.91 is 2.6 away.
    truth, generator = norm.cdf(apart / 2), np.random.default_rng(0)
    found = [rates(apart, generator) for _ in range(200)]
    held = [abs(r.risk - truth) <= 1.96 * r.standard_error for r in found]
    assert np.mean(held) >= 0.91


@pytest.mark.parametrize("members_spread", [1.0, 0.5])
@pytest.mark.parametrize("apart", [0.0, 1.5, 3.5])
def test_intervals_cover_the_area_and_the_rate_at_one_percent(apart, members_spread):
    # N(apart, s) against N(0, 1): AUC = Phi(apart / sqrt(1 + s^2)), and the threshold of 1%
    # is Phi^-1(0.99). 100 draws: of 0.95 less than 0.88 come by chance 2 times in 1,000.
    area = norm.cdf(apart / math.hypot(1, members_spread))
    rate = norm.sf((norm.ppf(0.99) - apart) / members_spread)
    generator, held = np.random.default_rng(1), np.zeros(2)
    for _ in range(100):
        sides = [(generator.normal(apart, members_spread, 1000), generator.normal(0, 1, 1000))]
        for at, (found, truth) in enumerate(
            [(auc_figure(sides), area), (tpr_at(0.01, sides), rate)]
        ):
            assert found.low is not None
            assert found.high is not None
            held[at] += found.low <= truth <= found.high
    assert held.min() >= 88


def test_the_error_of_a_fitted_threshold_by_hand():
    # a = (0.9 + 0.5) / 2 = 0.7: of 40 and 20 with one more right and one wrong, 29 / 42
    # and 15 / 22; D = 0.76 - 0.7 = 0.06
    rates = RiskEstimate.of_rates(0.9, 0.5, members=40, non_members=20, fitted=0.76)
    expected = (29 * 13 / 42**3 + 15 * 7 / 22**3) / 4 + 0.06**2 / 3
    assert rates.standard_error == pytest.approx(math.sqrt(expected))
