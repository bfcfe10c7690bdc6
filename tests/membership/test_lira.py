"""LiRA against the same thing written record by record."""

from typing import Literal

import numpy as np
import pytest
from scipy.stats import norm

from covey import ConfigError
from covey.membership.attacks import auc, lira_offline, lira_online

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
    kept = values[chosen] if variance == "global" else values[record][chosen[record]]
    return float(np.sqrt(np.mean((kept - np.mean(kept)) ** 2)))


@pytest.mark.parametrize("variance", VARIANCES)
def test_online_is_the_difference_of_log_densities(
    observed: Arrays, variance: Literal["global", "per-example"]
):
    target, references, inside = observed
    found = lira_online(target, references, inside, variance)
    for i in range(20):
        in_, out = (
            norm.logpdf(
                target[i],
                np.mean([references[i, m] for m in range(8) if chosen[i, m]]),
                spread(references, chosen, i, variance),
            )
            for chosen in (inside, ~inside)
        )
        assert found[i] == pytest.approx(in_ - out)


@pytest.mark.parametrize("variance", VARIANCES)
def test_offline_is_one_sided_and_blind_to_the_in_models(
    observed: Arrays, variance: Literal["global", "per-example"]
):
    target, references, inside = observed
    found = lira_offline(target, references, inside, variance)
    for i in range(20):
        mu = references[i][~inside[i]].mean()
        below = norm.cdf(target[i], mu, spread(references, ~inside, i, variance))
        assert 1 - np.exp(-found[i]) == pytest.approx(below)
    other = np.where(inside, 99.0, references)
    assert (lira_offline(target, other, inside, variance) == found).all()


def test_offline_rises_with_the_confidence_even_where_probabilities_are_one():
    target = np.array([10.0, 20.0, 40.0])
    references, inside = np.tile([[0.0, 1.0, 3.0]], (3, 1)), np.eye(3, dtype=bool)
    shared = np.tile(inside[2], (3, 1))
    assert (np.diff(lira_offline(target, references, shared)) > 0).all()


@pytest.mark.parametrize("attack", [lira_online, lira_offline])
@pytest.mark.parametrize("variance", VARIANCES)
def test_the_same_references_twice_say_nothing_new(observed: Arrays, attack, variance: str):
    target, *twice = observed
    once = attack(target, *twice, variance)
    again = attack(target, *(np.tile(each, 2) for each in twice), variance)
    np.testing.assert_allclose(again, once)


def test_a_variance_per_example_needs_two_references_of_each_kind():
    target, references = np.zeros(2), np.array([[0.0, 1.0], [2.0, 3.0]])
    inside = np.array([[True, False], [False, True]])
    assert np.isfinite(lira_online(target, references, inside)).all()
    with pytest.raises(ConfigError, match="at least 2 reference"):
        lira_online(target, references, inside, "per-example")


def test_a_record_that_models_learn_is_told_apart():
    # Known in N(2, 1), unknown in N(-2, 1): AUC = P[N(4, 2) > 0] = 0.998
    draw = np.random.default_rng(0)
    inside = np.tile([True, False], (400, 8))
    references = draw.normal(size=(400, 16)) + np.where(inside, 2.0, -2.0)
    member = np.arange(400) < 200
    target = draw.normal(size=400) + np.where(member, 2.0, -2.0)
    scores = lira_online(target, references, inside)
    assert auc(scores[member], scores[~member]) > 0.99
