"""From shadows to the target, worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import RiskEstimate
from covey.base.figure import Figure
from covey.membership.shadow import moderated, power_law, predicted


def figure(risk: float, error: float = 0.01, members: int = 100) -> RiskEstimate:
    return RiskEstimate(Figure(risk, error), risk, members, members)


def test_a_moderated_deviation_by_hand():
    # Mean 0.6, squares 2 * 0.04^2 = 0.0032; the sampling error 0.02 counts four times:
    # (4 * 0.0004 + 0.0032) / (4 + 3 - 1) = 0.0008
    assert moderated([0.56, 0.6, 0.64], 0.02) == pytest.approx(math.sqrt(0.0008))


def test_three_equal_draws_are_no_certainty():
    assert moderated([0.6, 0.6, 0.6], 0.02) == pytest.approx(0.02)
    assert moderated([0.6], 0.02) == pytest.approx(0.02)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9), st.floats(0.001, 0.1))
def test_a_moderated_deviation_lies_between_sampling_and_spread(values, sampling):
    found = moderated(values, sampling)
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    assert sampling <= found * (1 + 1e-9)
    assert found <= max(sampling, spread) * (1 + 1e-9)


def test_moderation_helps_where_three_draws_mislead():
    # Three draws of a normal with deviation 1, of which 0.9 is sampling error: a range
    # of 2 SE around their mean, for a fourth, should hold about 95% of the time. The
    # deviation of three alone has two degrees of freedom, and holds 81%.
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(2000, 4))
    factor = math.sqrt(1 + 1 / 3)
    hits = {"moderated": 0, "plain": 0}
    for *shadows, target in draws.tolist():
        off = abs(target - np.mean(shadows))
        hits["moderated"] += off <= 2 * factor * moderated(shadows, 0.9)
        hits["plain"] += off <= 2 * factor * np.std(shadows, ddof=1)
    assert hits["moderated"] / 2000 > 0.93
    assert hits["plain"] / 2000 < 0.85


def test_a_prediction_is_the_mean_and_the_error_of_one_more_draw():
    # equal risks leave the sampling error: 0.01 sqrt(1 + 1/4)
    found = predicted([figure(0.7)] * 4)
    assert found.risk == pytest.approx(0.7)
    assert found.standard_error == pytest.approx(0.01 * math.sqrt(1.25))


def test_a_power_law_is_continued_exactly():
    # Advantage 0.8 at 100, 0.4 at 400, 0.2 at 1600: halved by four times the examples,
    # so 0.1 at 6400.
    sizes = [(100, 0.9), (400, 0.7), (1600, 0.6)]
    shadows = [[figure(risk, members=n)] * 3 for n, risk in sizes]
    found = power_law(shadows, 6400)
    assert found.risk == pytest.approx(0.55)
    assert found.standard_error >= 0.01  # one more draw


def test_further_off_is_less_sure():
    shadows = [[figure(risk, members=n)] * 3 for n, risk in [(100, 0.9), (200, 0.8), (400, 0.7)]]
    errors = [power_law(shadows, n).standard_error for n in (400, 4000)]
    assert errors[0] < 0.02
    # the SE of a risk that has gone to nothing shrinks, but not below one more draw's
    assert all(error >= 0.01 for error in errors)


def test_more_examples_never_mean_more_risk():
    rising = [[figure(r, members=n)] * 3 for n, r in [(100, 0.6), (200, 0.65), (400, 0.7)]]
    assert power_law(rising, 10_000).risk <= 0.7


@pytest.mark.parametrize("risks", [(0.5, 0.5, 0.5), (0.49, 0.51, 0.48)])
def test_no_signal_stays_no_signal(risks: tuple[float, ...]):
    shadows = [
        [figure(risk, members=n)] * 3 for n, risk in zip((100, 200, 400), risks, strict=True)
    ]
    found = power_law(shadows, 4000)
    assert 0.5 <= found.risk < 0.52
    assert found.risk - 0.5 < 2 * found.standard_error
