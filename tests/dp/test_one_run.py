"""What one training with canaries refutes, against formulas, games and published figures."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import beta, norm

from covey import DataError, audit_one_run, draw_canaries
from covey.dp.accountant import gaussian_epsilon
from covey.dp.one_run import p_value, refutes_mu


def largest(refuted, low=0.0, high=64.0):
    """The largest number that is refuted, by nothing but halving."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def further(refuted, least):
    return largest(refuted, least) if refuted(least) else least


def test_without_delta_the_bound_is_that_of_randomised_response_by_hand():
    # of 3 guesses at least 2 are right with q^3 + 3 q^2 (1 - q); at epsilon ln 3, q = 3/4
    assert p_value(10, 3, 2, math.log(3), 0.0) == pytest.approx(27 / 64 + 27 / 64)
    # one more than is seen, or two more, with delta: W = 1 has 9/64, W in {0, 1} has 10/64
    expected = 54 / 64 + 2 * 10 * 0.001 * max(9 / 64, 10 / 64 / 2)
    assert p_value(10, 3, 2, math.log(3), 0.001) == pytest.approx(expected)


@given(st.integers(1, 8), st.data())
def test_the_p_value_is_the_sum_over_all_outcomes(r, data):
    v, epsilon = data.draw(st.integers(1, r)), data.draw(st.floats(0, 4))
    m, delta = data.draw(st.integers(r, 40)), data.draw(st.floats(0, 0.01))
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    chance = [0.0] * (r + 1)
    for outcome in product((0, 1), repeat=r):
        chance[sum(outcome)] += math.prod(q if right else 1 - q for right in outcome)
    alpha = max(sum(chance[v - i : v]) / i for i in range(1, v + 1))
    expected = min(1.0, sum(chance[v:]) + 2 * m * delta * alpha)
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("shift", "free", "gaussian"),
    [
        pytest.param(1, 1.13346, 2.164749, marks=pytest.mark.slow),
        pytest.param(2, 2.311945, 4.7218075, marks=pytest.mark.slow),
        (4, 4.395568, 9.133752),
    ],
)
def test_figures_that_jax_privacy_publishes(shift, free, gaussian):
    # its auditing_test.py: 10,000 scores a side at the quantiles of N(shift, 1) and N(0, 1);
    # all thresholds on the hull of the ROC curve share an error of 5%, delta = 1e-6
    n, delta = 10_000, 1e-6
    quantiles = norm.ppf((np.arange(n) + 0.5) / n)
    thresholds = np.concatenate([quantiles + shift, quantiles, [np.inf]])
    inside = n - np.searchsorted(quantiles + shift, np.sort(thresholds))[::-1]
    outside = n - np.searchsorted(quantiles, np.sort(thresholds))[::-1]
    hull = list[tuple[int, int]]()
    for x, y in zip(outside.tolist(), inside.tolist(), strict=True):
        while len(hull) > 1 and (y - hull[-2][1]) * (hull[-1][0] - hull[-2][0]) >= (
            hull[-1][1] - hull[-2][1]
        ) * (x - hull[-2][0]):
            hull.pop()
        hull.append((x, y))
    tau, bounds = 0.05 / len(hull), [0.0, 0.0]

    def refutes_epsilon(r: int, v: int, tau: float, epsilon: float) -> bool:
        return p_value(2 * n, r, v, epsilon, delta) <= tau

    def refuted_mu(r: int, v: int, tau: float, mu: float) -> bool:
        return refutes_mu(2 * n, r, v, mu, tau)

    surest = sorted(hull, key=lambda p: beta.ppf(tau, p[1], p[0] + 1) if p[1] else 0, reverse=True)
    for wrong, right in surest:
        r = wrong + right
        if not r or right / r <= expit(bounds[0]):
            continue
        bounds[0] = further(partial(refutes_epsilon, r, right, tau), bounds[0])
        bounds[1] = further(partial(refuted_mu, r, right, tau), bounds[1])
    assert bounds[0] == pytest.approx(free, rel=1e-5)
    assert gaussian_epsilon(bounds[1], delta) == pytest.approx(gaussian, rel=1e-5)


def test_all_right_by_hand():
    # rules of 1000, 500, 250 ... 15 guesses at both ends, and all but the first at one: 13
    coins, delta = draw_canaries(1000, seed=0), 1e-300
    audit = audit_one_run(coins.astype(float), coins, delta)
    # q^r <= 0.05 / 13; the 1000 guesses are not all right, as the coins are not half and half
    assert (audit.guesses, audit.right) == (500, 500)
    assert audit.epsilon == pytest.approx(logit((0.05 / 13) ** (1 / 500)), abs=2e-6)


def test_randomised_response_is_hardly_ever_refuted():
    # at most 5% of runs may be; of 50 more than 9 come by chance 1 time in 6,000
    draw, epsilon, refuted, reached = np.random.default_rng(1), 1.0, 0, list[float]()
    for seed in range(50):
        coins = draw_canaries(400, seed)
        answers = np.where(draw.random(400) < expit(epsilon), coins, ~coins)
        audit = audit_one_run(answers.astype(float), coins, 1e-5, accounted=epsilon)
        refuted += not audit.holds
        reached.append(audit.epsilon)
    assert refuted <= 9
    assert np.mean(reached) > 0.5 * epsilon  # and not by refuting nothing


def test_gaussian_noise_is_hardly_ever_refuted_and_its_own_bound_is_tighter():
    draw, mu, refuted = np.random.default_rng(2), 1.5, 0
    tighter = 0
    for seed in range(20):
        coins = draw_canaries(500, seed)
        audit = audit_one_run(mu * coins + draw.normal(size=500), coins, 1e-5)
        refuted += audit.gaussian_mu > mu or audit.epsilon > gaussian_epsilon(mu, 1e-5)
        tighter += audit.gaussian_epsilon > audit.epsilon > 0
    assert refuted <= 5  # 1 is expected at most; 6 come by chance 1 time in 3,000
    assert tighter >= 18


def test_half_of_the_gaussian_noise_is_found_by_mu_where_epsilon_finds_nothing():
    draw, mu = np.random.default_rng(5), 0.75
    violated, by_epsilon = 0, 0
    for seed in range(10):
        coins = draw_canaries(3000, seed)
        scores = 2 * mu * coins + draw.normal(size=3000)
        audit = audit_one_run(scores, coins, 1e-5, accounted_mu=mu)
        promised = gaussian_epsilon(mu, 1e-5)
        assert audit.accounted == promised
        violated += not audit.holds
        by_epsilon += audit.epsilon > promised
        assert audit.verdict.startswith("REFUTED: Gaussian noise of mu 0.75") is not audit.holds
    assert violated >= 8
    assert by_epsilon == 0


def test_equal_scores_refute_nothing_however_the_canaries_are_sorted():
    coins = np.sort(draw_canaries(1000, seed=3))[::-1]
    assert audit_one_run(np.zeros(1000), coins, 1e-5).epsilon == 0.0


@given(st.integers(0, 1000))
def test_only_the_order_of_scores_counts(seed):
    coins = draw_canaries(64, seed)
    scores = np.random.default_rng(seed).normal(size=64) + 2 * coins
    assert audit_one_run(scores, coins, 1e-5) == audit_one_run(np.exp(scores), coins, 1e-5)


def test_the_verdict_names_what_was_promised_and_what_was_shown():
    coins = draw_canaries(200, seed=4)
    audit = audit_one_run(coins.astype(float), coins, 1e-5, accounted=1.0)
    assert not audit.holds
    assert audit.verdict.startswith("REFUTED: 1.00 is accounted for, but epsilon is at least ")
    within = audit_one_run(coins.astype(float), coins, 1e-5, accounted=50.0)
    assert within.verdict.startswith("Not refuted: 50.00 is accounted for")
    alone = audit_one_run(coins.astype(float), coins, 1e-5)
    assert alone.verdict.startswith("By this one training epsilon is at least")


@pytest.mark.parametrize(
    ("scores", "coins", "sentence"),
    [
        (np.zeros(9), np.zeros(10), "found shapes"),
        (np.full(10, np.nan), np.arange(10) < 5, "10 scores that are none"),
        (np.zeros(100), np.ones(100), "found 100 of 100 included"),
    ],
)
def test_what_is_no_game_is_refused(scores, coins, sentence):
    with pytest.raises(DataError, match=sentence):
        audit_one_run(scores, coins, 1e-5)
