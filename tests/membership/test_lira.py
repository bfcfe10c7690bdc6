"""LiRA against the same thing written record by record."""

from typing import Literal

import numpy as np
import pytest
from scipy.stats import norm

from covey import ConfigError
from covey.membership.attacks import lira_offline, lira_online

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
def test_online_is_the_difference_of_log_densities(observed, variance):
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
def test_offline_is_one_sided_and_blind_to_the_in_models(observed, variance):
    target, references, inside = observed
    found = lira_offline(target, references, inside, variance)
    for i in range(20):
        mu = references[i][~inside[i]].mean()
        below = norm.cdf(target[i], mu, spread(references, ~inside, i, variance))
        assert 1 - np.exp(-found[i]) == pytest.approx(below)
    other = np.where(inside, 99.0, references)
    assert (lira_offline(target, other, inside, variance) == found).all()


def test_a_variance_per_example_needs_two_references_of_each_kind():
    target, references = np.zeros(2), np.array([[0.0, 1.0], [2.0, 3.0]])
    inside = np.array([[True, False], [False, True]])
    assert np.isfinite(lira_online(target, references, inside)).all()
    with pytest.raises(ConfigError, match="at least 2 reference"):
        lira_online(target, references, inside, "per-example")
