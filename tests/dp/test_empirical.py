"""The least epsilon that draws refute: never above the truth, and not far below it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.dp.accountant import gaussian_epsilon
from support.canaries import least_epsilon

DELTA, DRAWS = 1e-5, 10_000


def gaussian_draws(mu: float, seed: int, draws: int = DRAWS):
    generator = np.random.default_rng(seed)
    return generator.normal(mu, 1, draws), generator.normal(0, 1, draws)


@pytest.mark.parametrize("mu", [0.25, 0.5, 1.0, 2.0])
def test_the_bound_stays_below_the_truth_and_near_it(mu):
    true = gaussian_epsilon(mu, DELTA)
    found = [
        least_epsilon(*gaussian_draws(mu, seed), DELTA, is_gaussian=True) for seed in range(10)
    ]
    assert max(found) <= true
    assert np.median(found) >= 0.4 * true


def test_any_mechanism_is_bounded_by_the_odds_of_a_right_guess():
    # tells the truth three times out of four: odds of 3, so epsilon is ln 3
    generator = np.random.default_rng(0)
    there = (generator.random(DRAWS) < 0.75).astype(float)
    absent = (generator.random(DRAWS) < 0.25).astype(float)
    found = least_epsilon(there, absent, 0.0, is_gaussian=False)
    assert 0.9 * math.log(3) <= found <= math.log(3)


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_equal_draws_refute_nothing(seed):
    draws = gaussian_draws(0.0, seed, 400)
    assert least_epsilon(*draws, DELTA, is_gaussian=True) <= 0.5
    assert least_epsilon(draws[0], draws[0], DELTA, is_gaussian=False) == 0.0


def test_draws_that_a_rule_is_chosen_by_do_not_judge_it():
    shown = np.repeat([1.0, 0.0], DRAWS // 2)  # the canary shows in the first half alone
    for is_gaussian in (True, False):
        found = least_epsilon(shown, np.zeros(DRAWS), DELTA, is_gaussian=is_gaussian)
        assert found == 0
