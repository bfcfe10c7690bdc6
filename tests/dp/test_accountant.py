"""Costs: oracles in closed form, figures of the literature, and laws."""

import math

import numpy as np
import pytest
from dp_accounting import UnsupportedDpEvent
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import root_scalar

from covey.dp.accountant import (
    choice,
    epsilon_bound,
    gaussian,
    gaussian_epsilon,
    multiplier_for,
    representative,
)

ROUNDS, DELTA = 50, 1e-5


def epsilon_of(*mechanisms: object, delta: float = DELTA) -> float:
    cost = epsilon_bound(mechanisms, delta)  # pyright: ignore[reportArgumentType]
    assert cost is not None
    return cost.epsilon


@pytest.mark.parametrize("z", [26.38, 6.447, 1.612])
def test_loss_distributions_agree_with_the_closed_form(z):
    exact = gaussian_epsilon(math.sqrt(ROUNDS) / z, DELTA)
    assert epsilon_of(*[gaussian(z)] * ROUNDS) == pytest.approx(exact, abs=1e-3)


@given(mu=st.floats(0.05, 10.0), delta=st.floats(1e-8, 1e-2))
def test_the_closed_form_gives_its_delta_back(mu, delta):
    from scipy.stats import norm

    epsilon = gaussian_epsilon(mu, delta)
    found = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert found == pytest.approx(delta, rel=1e-3) or (epsilon == 0 and found < delta)


def test_a_secret_representative_costs_what_sampling_without_replacement_does():
    mechanisms = [representative(5.0, 10)] * ROUNDS
    assert epsilon_of(*mechanisms) == pytest.approx(1.223, abs=1e-3)
    found = epsilon_bound(mechanisms, DELTA)
    assert found is not None
    assert (found.relation, found.accountant) == ("replaced by another", "RDP")


def test_unsampled_multipliers_are_those_of_the_literature():
    for epsilon, z in ((1.0, 26.380), (8.0, 4.244)):
        found = multiplier_for(epsilon, DELTA, ROUNDS, gaussian)
        assert found == pytest.approx(z, rel=1e-3)


@settings(max_examples=8)
@given(epsilon=st.floats(0.1, 8.0), rounds=st.integers(1, 100))
@example(epsilon=0.1015625, rounds=1)
def test_a_multiplier_keeps_what_it_was_found_for(epsilon, rounds):
    z = multiplier_for(epsilon, DELTA, rounds, gaussian)
    found = epsilon_of(*[gaussian(z)] * rounds)
    assert 0.99 * epsilon <= found <= epsilon


@pytest.mark.parametrize(("epsilon", "times"), [(1.0, 10), (0.3, 100)])
def test_choices_cost_as_much_as_the_worst_ones_do(epsilon, times):
    """The worst choice is a coin of odds exp(epsilon / 2), or of the opposite ones."""
    from scipy.stats import binom

    right = 1 / (1 + math.exp(-epsilon / 2))
    wins = np.arange(times + 1)
    there, absent = binom.pmf(wins, times, right), binom.pmf(wins, times, 1 - right)

    def excess(of: float) -> float:
        return float(np.maximum(there - math.exp(of) * absent, 0).sum()) - DELTA

    true = float(root_scalar(excess, bracket=(0, times * epsilon)).root)
    found = epsilon_of(*[choice(epsilon)] * times)
    assert true <= found <= 3 * true


def test_a_release_that_nobody_can_account_for_has_no_cost():
    assert epsilon_bound([UnsupportedDpEvent()], DELTA) is None
    # sampled in two ways at once: each is known in one relation only
    assert epsilon_bound([gaussian(5.0, 0.1), representative(5.0, 10)], DELTA) is None
