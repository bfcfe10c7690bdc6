"""Noise that clients add under masks: exact draws, its grid, and what a sum has of it."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from covey import ConfigError, Streams
from covey.aggregation.privacy import Masks, PrivacyPlan
from covey.secure_sums import noise
from covey.secure_sums.noise import NoiseShares, S, discrete_gaussian


@pytest.mark.parametrize("secret", [None, 7])
def test_draws_are_discrete_gaussian(secret):
    drawn = discrete_gaussian(200_000, Streams(0, secret=secret).at("noise").draws())
    assert drawn.dtype == np.int64
    # at this size of S the law is that of a rounded normal number, but for 1e-10
    assert stats.kstest((drawn + 0.5) / S, "norm").pvalue > 1e-3
    assert np.var(drawn) == pytest.approx(S**2, rel=0.02)


def test_a_small_grid_has_the_probabilities_of_the_definition(monkeypatch):
    """With S = 2 every number is often drawn, and a wrong weight of one shows."""
    monkeypatch.setattr(noise, "S", 2)
    drawn = discrete_gaussian(200_000, Streams(1).at("noise").draws())
    values = np.arange(-7, 8)
    weights = np.exp(-(values**2) / 8)
    expected = weights / np.exp(-(np.arange(-60, 61) ** 2) / 8).sum() * len(drawn)
    counts = np.array([(drawn == v).sum() for v in values])
    assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(values) - 1) > 1e-3


def test_no_bit_hangs_on_how_well_a_float_decides(monkeypatch):
    """Whether one in a million or every second comparison is made exactly, draws are the same."""
    usual = discrete_gaussian(300, Streams(2).at("noise").draws())
    monkeypatch.setattr(noise, "DOUBT", 2.0**-20)
    careful = discrete_gaussian(300, Streams(2).at("noise").draws())
    monkeypatch.setattr(noise, "DOUBT", 2.0**-14)
    assert np.array_equal(discrete_gaussian(300, Streams(2).at("noise").draws()), careful)
    assert np.array_equal(usual, careful)


@given(bits=st.integers(0, 2**64 - 1), k=st.integers(0, 50 * S))
def test_an_exact_comparison_is_right_by_a_hundred_digits(bits, k):
    draws = Streams(3).at("more bits").draws()
    uniform = noise._Uniform(bits, 64, draws)
    said = uniform.is_below_exponential(Fraction(k, S))
    with localcontext() as context:
        context.prec = 200
        power = (-Decimal(k) / S).exp() * 2**uniform.length
        assert said == (uniform.bits + 1 <= power)
        assert said != (uniform.bits >= power)


@given(
    multiplier=st.floats(0.01, 50),
    honest=st.integers(1, 500),
    more=st.integers(0, 40),
    coordinates=st.integers(1, 10**7),
)
def test_a_sum_has_the_noise_that_is_accounted(multiplier, honest, more, coordinates):
    """By hand: m of n shares have z C, and rounding costs at most half a step an entry."""
    shares = NoiseShares(3.0, multiplier, honest)
    assert shares.step * S * math.sqrt(honest) == pytest.approx(multiplier * 3.0)
    assert shares.std(honest + more) >= multiplier * 3.0 * (1 - 1e-12)
    sensitivity = 3.0 / shares.step + math.sqrt(coordinates) / 2  # in steps
    effective = S * math.sqrt(honest) / sensitivity
    assert shares.effective_multiplier(coordinates) == pytest.approx(effective)
    assert effective < multiplier
    # with a weight w a client has less of the clip, and as much of the rounding
    light = S * math.sqrt(honest) / (0.25 * 3.0 / shares.step + math.sqrt(coordinates) / 2)
    plan = PrivacyPlan(noise=multiplier, by="distributed", masks=Masks(honest))
    assert plan.hidden_by(coordinates, 0.25) == pytest.approx(light)


def test_numbers_are_values_on_the_grid_and_noise():
    shares = NoiseShares(1.0, 0.5, 4)
    values = np.array([0.25, -0.5, 0.0])
    at = Streams(4).at("own noise")
    sent = shares.numbers(values, at.draws())
    drawn = discrete_gaussian(3, at.draws())
    assert np.array_equal(sent - drawn, np.rint(values / shares.step))
    np.testing.assert_allclose(shares.values(sent - drawn), values, atol=shares.step)


def test_whatever_a_client_has_it_adds_no_more_than_the_bound():
    shares, at = NoiseShares(1.0, 0.5, 4), Streams(6).at("own noise")
    loud = np.array([3.0, -4.0, 1e9, 0.0])
    sent = shares.numbers(loud, at.draws()) - discrete_gaussian(4, at.draws())
    length = np.linalg.norm(sent * shares.step)
    assert 1 - 2 * shares.step < length <= 1 + 2 * shares.step


def test_so_little_noise_that_sums_could_wrap_is_refused():
    shares = NoiseShares(1.0, 1e-9, 4)
    with pytest.raises(ConfigError, match=r"raise privacy\.client_noise"):
        shares.numbers(np.array([1.0]), Streams(5).draws())
