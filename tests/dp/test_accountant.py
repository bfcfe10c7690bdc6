"""Costs: oracles in closed form, figures of the literature, laws, and what draws refute."""

import math

import numpy as np
import pytest
from dp_accounting import UnsupportedDpEvent
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import root_scalar

from covey.dp.accountant import (
    choice,
    claimed_epsilon,
    claimed_sigma,
    delivered_epsilon,
    epsilon_bound,
    gaussian,
    gaussian_epsilon,
    multiplier_for,
    representative,
    theorem_range,
)
from covey.dp.run_guarantees import NoisePlan, adversary_views, forecast, multiplier
from support.canaries import least_epsilon

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
    delta_back = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(
        -mu / 2 - epsilon / mu
    )
    assert delta_back == pytest.approx(delta, rel=1e-3) or (epsilon == 0 and delta_back < delta)


def test_a_secret_representative_costs_what_sampling_without_replacement_does():
    mechanisms = [representative(5.0, 10)] * ROUNDS
    assert epsilon_of(*mechanisms) == pytest.approx(1.223, abs=1e-3)
    bound = epsilon_bound(mechanisms, DELTA)
    assert bound is not None
    assert (bound.relation, bound.accountant) == ("replaced by another", "RDP")


def test_unsampled_multipliers_are_those_of_the_literature():
    for epsilon, z in ((1.0, 26.380), (8.0, 4.244)):
        least = multiplier_for(epsilon, DELTA, ROUNDS, gaussian)
        assert least == pytest.approx(z, rel=1e-3)


@settings(max_examples=8)
@given(epsilon=st.floats(0.1, 8.0), rounds=st.integers(1, 100))
@example(epsilon=0.1015625, rounds=1)
def test_a_multiplier_keeps_what_it_was_found_for(epsilon, rounds):
    z = multiplier_for(epsilon, DELTA, rounds, gaussian)
    composed = epsilon_of(*[gaussian(z)] * rounds)
    assert 0.99 * epsilon <= composed <= epsilon


@pytest.mark.parametrize(("epsilon", "times"), [(1.0, 10), (0.3, 100)])
def test_choices_cost_as_much_as_the_worst_ones_do(epsilon, times):
    """The worst choice is a coin of odds exp(epsilon / 2), or of the opposite ones."""
    from scipy.stats import binom

    right = 1 / (1 + math.exp(-epsilon / 2))
    wins = np.arange(times + 1)
    present, absent = binom.pmf(wins, times, right), binom.pmf(wins, times, 1 - right)

    def excess(of: float) -> float:
        return float(np.maximum(present - math.exp(of) * absent, 0).sum()) - DELTA

    true = float(root_scalar(excess, bracket=(0, times * epsilon)).root)
    composed = epsilon_of(*[choice(epsilon)] * times)
    assert true <= composed <= 3 * true


def test_a_release_that_nobody_can_account_for_has_no_cost():
    assert epsilon_bound([UnsupportedDpEvent()], DELTA) is None
    # sampled in two ways at once: each is known in one relation only
    assert epsilon_bound([gaussian(5.0, 0.1), representative(5.0, 10)], DELTA) is None


DRAWN_DELTA, DRAWS = 1e-5, 10_000


def gaussian_draws(mu: float, seed: int, draws: int = DRAWS):
    generator = np.random.default_rng(seed)
    return generator.normal(mu, 1, draws), generator.normal(0, 1, draws)


@pytest.mark.parametrize("mu", [0.25, 0.5, 1.0, 2.0])
def test_the_bound_stays_below_the_truth_and_near_it(mu):
    true = gaussian_epsilon(mu, DRAWN_DELTA)
    epsilons = [
        least_epsilon(*gaussian_draws(mu, seed), DRAWN_DELTA, is_gaussian=True)
        for seed in range(10)
    ]
    assert max(epsilons) <= true
    assert np.median(epsilons) >= 0.4 * true


def test_any_mechanism_is_bounded_by_the_odds_of_a_right_guess():
    # tells the truth three times out of four: odds of 3, so epsilon is ln 3
    generator = np.random.default_rng(0)
    present = (generator.random(DRAWS) < 0.75).astype(float)
    absent = (generator.random(DRAWS) < 0.25).astype(float)
    epsilon = least_epsilon(present, absent, 0.0, is_gaussian=False)
    assert 0.9 * math.log(3) <= epsilon <= math.log(3)


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_equal_draws_refute_nothing(seed):
    draws = gaussian_draws(0.0, seed, 400)
    assert least_epsilon(*draws, DRAWN_DELTA, is_gaussian=True) <= 0.5
    assert least_epsilon(draws[0], draws[0], DRAWN_DELTA, is_gaussian=False) == 0.0


def test_draws_that_a_rule_is_chosen_by_do_not_judge_it():
    shown = np.repeat([1.0, 0.0], DRAWS // 2)  # the canary shows in the first half alone
    for is_gaussian in (True, False):
        epsilon = least_epsilon(shown, np.zeros(DRAWS), DRAWN_DELTA, is_gaussian=is_gaussian)
        assert epsilon == 0


# epsilon claimed, sigma printed, and the epsilon that is true if the noise is
# sigma Delta (Algorithm 1), 2 sigma Delta (section 3.2), or Delta is a diameter
TABLE = [
    (1.0, 25.788, 2.210, 1.025, 0.480),
    (2.0, 12.894, 4.873, 2.210, 1.025),
    (4.0, 6.447, 11.209, 4.873, 2.210),
    (8.0, 3.2235, 27.639, 11.209, 4.873),
]


def cost(z: float) -> float:
    bound = epsilon_bound([gaussian(z)] * ROUNDS, DELTA)
    assert bound is not None
    return bound.epsilon


@pytest.mark.parametrize(("claimed", "sigma", "one", "two", "diameter"), TABLE)
def test_what_the_theorem_claims_is_not_what_is_delivered(claimed, sigma, one, two, diameter):
    assert claimed_sigma(claimed, DELTA, ROUNDS) == pytest.approx(sigma, abs=1e-3)
    assert claimed_epsilon(sigma, DELTA, ROUNDS) == pytest.approx(claimed, abs=1e-3)
    delivered = delivered_epsilon(sigma, DELTA, ROUNDS)
    assert delivered is not None
    assert delivered.epsilon == pytest.approx(one, rel=1e-3)
    assert cost(sigma) == pytest.approx(two, rel=1e-3)
    assert cost(2 * sigma) == pytest.approx(diameter, rel=1e-3)


def test_the_theorem_is_about_epsilon_below_8_log_1_over_delta():
    most = theorem_range(DELTA)
    assert most == pytest.approx(92.103, abs=1e-3)
    edge = claimed_sigma(most, DELTA, ROUNDS)
    assert claimed_epsilon(edge * 1.001, DELTA, ROUNDS) == pytest.approx(most / 1.001)
    assert claimed_epsilon(edge * 0.999, DELTA, ROUNDS) is None


@pytest.mark.parametrize(("claimed", "expected"), [(1.0, 52.759), (8.0, 8.489)])
def test_the_least_sound_sigma_is_about_twice_the_printed_one(claimed, expected):
    sound = 2 * multiplier_for(claimed, DELTA, ROUNDS, gaussian)
    assert sound == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_a_forecast_is_the_strictest_view_of_the_released_models():
    plan = NoisePlan("sound", ROUNDS, DELTA, set_size=10, sets=5)
    z = multiplier(plan, 4.0)
    assert z == pytest.approx(0.84, abs=0.01)  # 1.88 / sqrt(5): who speaks is a secret
    seen = adversary_views(plan, z)
    epsilon = forecast(plan, z).epsilon
    assert epsilon is not None
    assert epsilon <= 4.0
    assert epsilon == seen["their mean"]
    known = [epsilon for epsilon in seen.values() if epsilon is not None]
    assert epsilon == min(known)
    assert len(known) == 4
