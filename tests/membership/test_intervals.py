"""Intervals, and whether those of fitted thresholds hold what a large audit finds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from covey import RiskEstimate, Streams
from covey.base.figure import Figure
from covey.membership.attacks import cross_fitted
from covey.membership.estimators import combined_counts, loss_counts, risk_of_counts
from covey.membership.intervals import (
    attack_metrics,
    auc_figure,
    clopper_pearson,
    hanley_mcneil,
    tpr_at,
    with_extremes,
)
from covey.membership.shadow import moderated, power_law

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
    rate = tpr_at(0.01, [(members, others)])
    assert rate.value == 0.75
    # Of 1,000 above a true threshold with a chance of 1%, 4 to 17 are above it with 95%:
    # it may be above 996, which 1 member exceeds, and 982, which all do.
    assert (rate.low, rate.high) == (clopper_pearson(1, 4)[0], clopper_pearson(4, 4)[1])


def ends(figure: Figure) -> tuple[float, float]:
    assert figure.low is not None
    assert figure.high is not None
    return figure.low, figure.high


def test_an_area_of_one_still_has_an_interval_by_hand():
    # 1 - theta = 1.96 SE(theta), and one record a side more makes it narrower
    auc = auc_figure([(np.arange(10.0) + 10, np.arange(10.0))])
    assert (auc.value, auc.error, auc.high) == (1.0, 0.0, 1.0)
    low, _ = ends(auc)
    assert 1 - low == pytest.approx(1.96 * hanley_mcneil(low, 10, 10), rel=1e-4)


@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_an_area_lies_within_its_interval_and_is_mirrored_with_its_sides(seed, distance):
    draw = np.random.default_rng(seed)
    inside, outside = draw.normal(distance, 1, 20), draw.normal(0, 2, 30)
    auc, mirrored = auc_figure([(inside, outside)]), auc_figure([(outside, inside)])
    low, high = ends(auc)
    assert low <= float(auc) <= high
    assert ends(mirrored) == pytest.approx((1 - high, 1 - low))
    assert auc.error == pytest.approx(mirrored.error)


def test_each_group_has_its_own_threshold():
    # Group 2 scores 5,000 higher on both sides: a common threshold would find nobody
    # of group 1 and accuse group 2.
    others = np.arange(1000.0)
    low = (np.array([500.0, 999.0]), others)
    high = (np.array([5500.0, 5999.0]), others + 5000)
    assert tpr_at(0.01, [low, high]).value == 0.5


def test_too_few_non_members_give_no_rate():
    rate = tpr_at(0.001, [(np.ones(50), np.zeros(9_999))])
    assert rate.value is rate.low is rate.high is None
    assert "at least 10,000 non-members" in rate.reason
    assert "found 9,999" in rate.reason


def test_small_groups_do_not_count_and_nobody_is_not_zero():
    metrics = attack_metrics([(np.ones(9), np.zeros(500))], STREAMS)
    assert metrics.auc.value is None
    assert "fewer than 10" in metrics.auc.reason
    assert (metrics.members, metrics.non_members) == (9, 500)


MEAN = RiskEstimate(Figure(0.6, 0.1))


def extremes_of(inside, outside) -> RiskEstimate:
    return with_extremes(MEAN, inside, outside)


def test_who_is_recognised_surely_and_the_worst_client_by_hand():
    outside = np.arange(100) / 100
    certain = np.full(10, 2.0)  # above every other score
    metrics = extremes_of([certain, np.full(10, 0.2)], outside)
    assert (metrics.tpr_at_1, metrics.worst_client) == (0.5, pytest.approx(1.0))
    # no more than one in a hundred is accused: two of 150 would be below outside[-2]
    outside = np.arange(150) / 150
    between = np.array([outside[-2]] * 10 + [outside[-1]] * 10)
    assert extremes_of([between], outside).tpr_at_1 == 0.5


def test_scores_of_a_model_that_diverged_accuse_nobody_and_few_records_say_nothing():
    metrics = extremes_of([np.full(20, -np.inf)], np.full(100, -np.inf))
    assert (metrics.tpr_at_1, metrics.worst_client) == (0.0, 0.5)
    for inside, outside in (([np.zeros(9)], 100), ([np.zeros(20)], 9), ([], 100)):
        assert extremes_of(inside, np.zeros(outside)) == MEAN


def rates_by_counts(distance: float, generator: np.random.Generator):
    """Rates of four clients with 48 members and 12 held-out examples each."""
    inside, outside = (
        [loss_counts(np.exp(generator.normal(-mean, 1, size)), generator) for _ in range(4)]
        for mean, size in ((distance, 48), (0.0, 12))
    )
    return risk_of_counts(*combined_counts(inside, outside))


def rates_by_scores(distance: float, generator: np.random.Generator):
    """The same where every score is at hand."""
    inside = generator.normal(distance, 1, 4 * 48)
    outside = generator.normal(0, 1, 4 * 12)
    return cross_fitted(inside, outside, generator)


@pytest.mark.parametrize("rates", [rates_by_counts, rates_by_scores])
@pytest.mark.parametrize("distance", [0.05, 1.0])
def test_intervals_cover_the_risk_of_the_best_threshold(rates, distance):
    # Between N(0, 1) and N(apart, 1) the best threshold is right with Phi(apart / 2).
    # 200 draws: SE of a share of 0.95 is 0.0154, of which 0.91 is 2.6 away.
    truth, generator = norm.cdf(distance / 2), np.random.default_rng(0)
    risks = [rates(distance, generator) for _ in range(200)]
    held = [abs(r.risk - truth) <= 1.96 * r.standard_error for r in risks]
    assert np.mean(held) >= 0.91


@pytest.mark.parametrize("members_spread", [1.0, 0.5])
@pytest.mark.parametrize("distance", [0.0, 1.5, 3.5])
def test_intervals_cover_the_area_and_the_rate_at_one_percent(distance, members_spread):
    # N(apart, s) against N(0, 1): AUC = Phi(apart / sqrt(1 + s^2)), and the threshold of 1%
    # is Phi^-1(0.99). 100 draws: of 0.95 less than 0.88 come by chance 2 times in 1,000.
    area = norm.cdf(distance / math.hypot(1, members_spread))
    rate = norm.sf((norm.ppf(0.99) - distance) / members_spread)
    generator, held = np.random.default_rng(1), np.zeros(2)
    for _ in range(100):
        sides = [(generator.normal(distance, members_spread, 1000), generator.normal(0, 1, 1000))]
        for at, (interval, truth) in enumerate(
            [(auc_figure(sides), area), (tpr_at(0.01, sides), rate)]
        ):
            assert interval.low is not None
            assert interval.high is not None
            held[at] += interval.low <= truth <= interval.high
    assert held.min() >= 88


def test_the_error_of_a_fitted_threshold_by_hand():
    # a = (0.9 + 0.5) / 2 = 0.7: of 40 and 20 with one more right and one wrong, 29 / 42
    # and 15 / 22; D = 0.76 - 0.7 = 0.06
    rates = RiskEstimate.of_rates(0.9, 0.5, members=40, non_members=20, fitted=0.76)
    expected = (29 * 13 / 42**3 + 15 * 7 / 22**3) / 4 + 0.06**2 / 3
    assert rates.standard_error == pytest.approx(math.sqrt(expected))


def figure(risk: float, error: float = 0.01, members: int = 100) -> RiskEstimate:
    return RiskEstimate(Figure(risk, error), risk, members, members)


def test_a_moderated_deviation_by_hand():
    # Mean 0.6, squares 2 * 0.04^2 = 0.0032; the sampling error 0.02 counts four times:
    # (4 * 0.0004 + 0.0032) / (4 + 3 - 1) = 0.0008
    assert moderated([0.56, 0.6, 0.64], 0.02) == pytest.approx(math.sqrt(0.0008))


def test_a_power_law_is_continued_exactly():
    # Advantage 0.8 at 100, 0.4 at 400, 0.2 at 1600: halved by four times the examples,
    # so 0.1 at 6400.
    sizes = [(100, 0.9), (400, 0.7), (1600, 0.6)]
    shadows = [[figure(risk, members=n)] * 3 for n, risk in sizes]
    fitted = power_law(shadows, 6400)
    assert fitted.risk == pytest.approx(0.55)
    assert fitted.standard_error >= 0.01  # one more draw


def test_more_examples_never_mean_more_risk():
    rising = [[figure(r, members=n)] * 3 for n, r in [(100, 0.6), (200, 0.65), (400, 0.7)]]
    assert power_law(rising, 10_000).risk <= 0.7


@pytest.mark.parametrize("risks", [(0.5, 0.5, 0.5), (0.49, 0.51, 0.48)])
def test_no_signal_stays_no_signal(risks):
    shadows = [
        [figure(risk, members=n)] * 3 for n, risk in zip((100, 200, 400), risks, strict=True)
    ]
    fitted = power_law(shadows, 4000)
    assert 0.5 <= fitted.risk < 0.52
    assert fitted.risk - 0.5 < 2 * fitted.standard_error
