"""LiRA and RMIA against the same thing written record by record."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from covey import ConfigError
from covey.membership.attacks import (
    Variance,
    _law,
    auc,
    likelihood_ratio_offline,
    likelihood_ratio_online,
    lira_offline,
    lira_online,
    rmia,
)

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
VARIANCES: tuple[Literal["global", "per-example"], ...] = ("global", "per-example")


@pytest.fixture
def observed() -> Arrays:
    """20 records, 8 references of which 4 hold each."""
    draw = np.random.default_rng(0)
    inside = np.stack([draw.permutation(8) < 4 for _ in range(20)])
    references = draw.normal(size=(20, 8)) + 2 * inside
    return draw.normal(size=20), references, inside


def spread(values: np.ndarray, chosen: np.ndarray, record: int, variance: str) -> float:
    chosen_values = values[chosen] if variance == "global" else values[record][chosen[record]]
    return float(np.sqrt(np.mean((chosen_values - np.mean(chosen_values)) ** 2)))


@pytest.mark.parametrize("variance", VARIANCES)
def test_online_is_the_difference_of_log_densities(observed, variance):
    target, references, inside = observed
    scores = lira_online(target, references, inside, variance)
    for i in range(20):
        in_, out = (
            norm.logpdf(
                target[i],
                np.mean([references[i, m] for m in range(8) if chosen[i, m]]),
                spread(references, chosen, i, variance),
            )
            for chosen in (inside, ~inside)
        )
        assert scores[i] == pytest.approx(in_ - out)


@pytest.mark.parametrize("variance", VARIANCES)
def test_offline_is_one_sided_and_blind_to_the_in_models(observed, variance):
    target, references, inside = observed
    scores = lira_offline(target, references, inside, variance)
    for i in range(20):
        mu = references[i][~inside[i]].mean()
        below = norm.cdf(target[i], mu, spread(references, ~inside, i, variance))
        assert 1 - np.exp(-scores[i]) == pytest.approx(below)
    other = np.where(inside, 99.0, references)
    assert (lira_offline(target, other, inside, variance) == scores).all()


def test_a_variance_per_example_needs_two_references_of_each_kind():
    target, references = np.zeros(2), np.array([[0.0, 1.0], [2.0, 3.0]])
    inside = np.array([[True, False], [False, True]])
    assert np.isfinite(lira_online(target, references, inside)).all()
    with pytest.raises(ConfigError, match="at least 2 reference"):
        lira_online(target, references, inside, "per-example")


def drawn(records: int, models: int, spread: float, freedom: float, seed: int = 0):
    """Confidences whose variances are drawn around `spread`^2, as closely as `freedom` says."""
    draw = np.random.default_rng(seed)
    sigma = spread * np.sqrt(freedom / draw.chisquare(freedom, records))
    mu = draw.normal(0, 3, records)
    values = mu[:, None] + sigma[:, None] * draw.normal(size=(records, models))
    return values, mu, sigma


def test_the_prior_of_variances_is_the_one_that_they_were_drawn_from():
    values, _, _ = drawn(20_000, 5, 2.0, 6.0)
    law = _law(values, np.ones_like(values, dtype=bool), "bayesian-t")
    nu_after, centre, scale = law.args
    assert nu_after[0] - 5 == pytest.approx(6.0, rel=0.1)
    # the means' spread is 3: kappa = 2^2 / 3^2, and a mean of 5 is pulled by kappa / (kappa + 5)
    pulled = 5 / (5 + 4 / 9)
    assert centre == pytest.approx(pulled * values.mean(axis=1), abs=0.1)
    assert np.median(scale) == pytest.approx(2.0 * np.sqrt(1.2), rel=0.2)


def test_one_variance_for_all_and_one_of_each_are_the_ends_of_the_bayesian_one():
    alike, _, _ = drawn(5_000, 4, 2.0, 1e9)
    _, scale = _law(alike, np.ones_like(alike, dtype=bool), "bayesian-n").args
    assert scale == pytest.approx(2.0, rel=0.1)
    many, _, _ = drawn(200, 4_000, 2.0, 3.0)
    everything = np.ones_like(many, dtype=bool)
    centre, own = _law(many, everything, "per-example").args
    arguments, scale = _law(many, everything, "bayesian-n").args
    assert arguments == pytest.approx(centre, abs=0.02)
    assert scale == pytest.approx(own, rel=0.02)


def test_few_references_are_used_better_than_by_either_end():
    # of 3,000 members and non-members, 4 models with and 4 without each record
    draw, area = np.random.default_rng(1), dict[str, float]()
    values, mu, sigma = drawn(6_000, 8, 1.0, 4.0)
    inside = np.tile(np.arange(8) < 4, (6_000, 1))
    values += 1.5 * inside
    member = np.arange(6_000) < 3_000
    target = mu + 1.5 * member + sigma * draw.normal(size=6_000)
    kinds: tuple[Variance, ...] = ("global", "per-example", "bayesian-n", "bayesian-t")
    for variance in kinds:
        scores = lira_online(target, values, inside, variance)
        area[variance] = auc(scores[member], scores[~member])
    assert area["bayesian-t"] > max(area["global"], area["per-example"]) + 0.005
    assert area["bayesian-t"] >= area["bayesian-n"] - 0.002


numbers = st.lists(st.floats(-9, 9), min_size=1, max_size=9).map(np.array)


def test_offline_by_hand():
    # p_out = .2, a = .5: p(x) = (1.5 * .2 + .5) / 2 = .4
    target, references = np.log([0.8]), np.log([[0.9, 0.2, 0.2]])
    inside = np.array([[True, False, False]])
    scores = likelihood_ratio_offline(target, references, inside, a=0.5)
    assert np.exp(scores) == pytest.approx([0.8 / 0.4])


def test_the_ratios_record_by_record():
    draw = np.random.default_rng(0)
    inside = np.stack([draw.permutation(5) < 2 for _ in range(12)])
    target, references = np.log(draw.random(12)), np.log(draw.random((12, 5)))
    scores = np.exp(likelihood_ratio_online(target, references, inside))
    for i in range(12):
        p_in, p_out = (np.exp(references[i][c]).mean() for c in (inside[i], ~inside[i]))
        assert scores[i] == pytest.approx(np.exp(target[i]) / ((p_in + p_out) / 2))


def test_certain_models_do_not_overflow():
    target, references = np.array([-900.0, 0.0]), np.full((2, 2), -900.0)
    inside = np.array([[True, False]] * 2)
    scores = likelihood_ratio_online(target, references, inside)
    assert scores == pytest.approx([0.0, 900.0])


@given(numbers, numbers, st.sampled_from([1.0, 2.0]))
def test_the_score_is_the_share_of_the_population_that_is_beaten(ratios, population, gamma):
    scores = rmia(ratios, population, gamma)
    assert ((scores >= 0) & (scores <= 1)).all()
    for x, score in zip(ratios, scores, strict=True):
        beaten = [x - np.log(gamma) >= z for z in population]
        assert score == pytest.approx(np.mean(beaten))
