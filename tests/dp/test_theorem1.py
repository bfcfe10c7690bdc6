"""The second paper's Theorem 1: what it prints, and what its algorithm delivers."""

import pytest

from covey.dp.accountant import (
    claimed_epsilon,
    claimed_sigma,
    delivered_epsilon,
    epsilon_bound,
    gaussian,
    multiplier_for,
    theorem_range,
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
def test_what_the_theorem_claims_is_not_what_is_delivered(claimed, sigma, one, two, diameter):
    assert claimed_sigma(claimed, DELTA, ROUNDS) == pytest.approx(sigma, abs=1e-3)
    assert claimed_epsilon(sigma, DELTA, ROUNDS) == pytest.approx(claimed, abs=1e-3)
    found = delivered_epsilon(sigma, DELTA, ROUNDS)
    assert found is not None
    assert found.epsilon == pytest.approx(one, rel=1e-3)
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
    found = forecast(plan, z).epsilon
    assert found is not None
    assert found <= 4.0
    assert found == seen["their mean"]
    known = [each for each in seen.values() if each is not None]
    assert found == min(known)
    assert len(known) == 4
