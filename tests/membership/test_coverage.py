"""Intervals of fitted thresholds hold what a large audit of the same model finds."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from covey.base.figure import RiskEstimate
from covey.membership.attacks import cross_fitted
from covey.membership.estimators import combined_counts, loss_counts, risk_of_counts


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


def test_the_error_of_a_fitted_threshold_by_hand():
    # a = (0.9 + 0.5) / 2 = 0.7: of 40 and 20 with one more right and one wrong, 29 / 42
    # and 15 / 22; D = 0.76 - 0.7 = 0.06
    rates = RiskEstimate.of_rates(0.9, 0.5, members=40, non_members=20, fitted=0.76)
    expected = (29 * 13 / 42**3 + 15 * 7 / 22**3) / 4 + 0.06**2 / 3
    assert rates.standard_error == pytest.approx(math.sqrt(expected))
