"""The second paper's Theorem 1: what it prints, and what its algorithm delivers."""

import math

import pytest

from covey.dp.accountant import (
    claimed_epsilon,
    claimed_sigma,
    delivered_epsilon,
    epsilon_bound,
    gaussian,
    multiplier_for,
)
from covey.dp.run_guarantees import NoisePlan, adversary_views, forecast, multiplier

ROUNDS, DELTA = 50, 1e-5

# epsilon claimed, sigma printed, and the epsilon that is true if the noise is
# sigma Delta (Algorithm 1), 2 sigma Delta (section 3.2), or Delta is a diameter
TABLE = [
    (1.0, 25.788, 2.210, 1.025, 0.480),
    (2.0, 12.894, 4.873, 2.210, 1.025),
    (4.0, 6.447, 11.209, 4.873, 2.210),
    (8.0, 3.2235, 27.639, 11.209, 4.873),
]


def cost(z: float) -> float:
    found = epsilon_bound([gaussian(z)] * ROUNDS, DELTA)
    assert found is not None
    return found.epsilon


@pytest.mark.parametrize(("claimed", "sigma", "one", "two", "diameter"), TABLE)
def test_what_the_theorem_claims_is_not_what_is_delivered(
    claimed: float, sigma: float, one: float, two: float, diameter: float
):
    assert claimed_sigma(claimed, DELTA, ROUNDS) == pytest.approx(sigma, abs=1e-3)
    assert claimed_epsilon(sigma, DELTA, ROUNDS) == pytest.approx(claimed, abs=1e-3)
    found = delivered_epsilon(sigma, DELTA, ROUNDS)
    assert found is not None
    assert found.epsilon == pytest.approx(one, rel=1e-3)
    assert cost(sigma) == pytest.approx(two, rel=1e-3)
    assert cost(2 * sigma) == pytest.approx(diameter, rel=1e-3)


@pytest.mark.parametrize("claimed", [1.0, 2.0, 4.0, 8.0])
def test_the_least_sound_sigma_is_about_twice_the_printed_one(claimed: float):
    sound = 2 * multiplier_for(claimed, DELTA, ROUNDS, gaussian)
    expected = {1.0: 52.759, 2.0: 28.197, 4.0: 15.290, 8.0: 8.489}
    assert sound == pytest.approx(expected[claimed], rel=1e-3)


def test_the_printed_sigma_is_that_of_the_derivation_at_one_only():
    for epsilon, short in ((1.0, 1.0), (8.0, 3.342 / 3.2235)):
        terms = epsilon + 8 * math.log(1 / DELTA)
        derived = math.sqrt(ROUNDS * terms / 7) / epsilon
        ratio = derived / claimed_sigma(epsilon, DELTA, ROUNDS)
        assert ratio == pytest.approx(short, abs=1e-3)


# What the noise of one representative must be, over 2 Delta, for 50 clients: epsilon,
# knowing each representative and who it is; their mean, of 12 and of 5 sets
PLAIN = [(1.0, 26.38, 7.62, 11.80), (8.0, 4.24, 1.23, 1.90)]
# and not knowing who it is: of 4 or 10 members each alone, and their mean
SECRET = [(1.0, 14.82, 5.99, 4.28, 2.68), (4.0, 4.25, 1.88, 1.23, 0.84)]


@pytest.mark.parametrize(("epsilon", "each", "of_12", "of_5"), PLAIN)
def test_the_mean_of_independent_noise_needs_less_of_it(
    epsilon: float, each: float, of_12: float, of_5: float
):
    z = multiplier_for(epsilon, DELTA, ROUNDS, gaussian)
    assert z == pytest.approx(each, abs=0.01)
    assert z / math.sqrt(12) == pytest.approx(of_12, abs=0.01)
    assert z / math.sqrt(5) == pytest.approx(of_5, abs=0.01)


@pytest.mark.parametrize(("epsilon", "of_4", "of_10", "mean_4", "mean_10"), SECRET)
def test_a_secret_speaker_needs_less_noise(
    epsilon: float, of_4: float, of_10: float, mean_4: float, mean_10: float
):
    def needed(set_size: int, sets: int) -> float:
        return multiplier(NoisePlan("sound", ROUNDS, DELTA, set_size, sets), epsilon)

    assert needed(4, 12) == pytest.approx(mean_4, abs=0.01)
    assert needed(10, 5) == pytest.approx(mean_10, abs=0.01)
    # independent noise of C sets is sqrt(C) times as much as one needs alone
    assert needed(4, 12) * math.sqrt(12) == pytest.approx(of_4, abs=0.03)
    assert needed(10, 5) * math.sqrt(5) == pytest.approx(of_10, abs=0.03)


def test_a_forecast_is_the_strictest_view_of_the_released_models():
    plan = NoisePlan("sound", ROUNDS, DELTA, set_size=10, sets=5)
    z = multiplier(plan, 4.0)
    seen = adversary_views(plan, z)
    found = forecast(plan, z).epsilon
    assert found is not None
    assert found <= 4.0
    assert found == seen["their mean"]
    known = [each for each in seen.values() if each is not None]
    assert found == min(known)
    assert len(known) == 4
