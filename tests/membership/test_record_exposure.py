"""Exposure per record, by hand, and what is told of it."""

import numpy as np
import pytest
from numpy import ndarray
from scipy.stats import norm

from covey import ConfigError, Signals
from covey.membership.references import exposed_counts, record_exposures


def log_probs(phi: ndarray) -> ndarray:
    """Two classes whose logit-scaled confidence in the first is phi."""
    both = np.stack([phi, np.zeros_like(phi)], axis=-1)
    return both - np.logaddexp.reduce(both, axis=-1, keepdims=True)


def signals(phi: ndarray, inside: ndarray) -> Signals:
    n = len(phi)
    return Signals(np.zeros(n, dtype=int), log_probs(phi[:, 0]), log_probs(phi), inside)


OWNERS = np.arange(300) % 3
INSIDE = np.array([[True, True, False, False]] * 2)


def test_by_hand():
    # first record: inside 4 and 6, outside 0 and 2: means 5 and 1; second: no difference.
    # All eight are 1 from their means, with 8 - 4 degrees of freedom: sigma = sqrt(2)
    phi = np.array([[4.0, 6.0, 0.0, 2.0], [1.0, 3.0, 1.0, 3.0]])
    expected = [norm.cdf(4 / (2 * np.sqrt(2))), 0.5]
    np.testing.assert_allclose(record_exposures(signals(phi, INSIDE)), expected)


def test_a_record_that_every_model_learnt_has_no_exposure():
    with pytest.raises(ConfigError, match="outside"):
        record_exposures(signals(np.zeros((2, 4)), np.ones((2, 4), dtype=bool)))


def test_only_counts_are_told():
    # 150 members: 1% are two. Two records give themselves away to every reference
    draw = np.random.default_rng(0)
    inside = np.stack([draw.permutation(300) < 150 for _ in range(4)], axis=1)
    inside = np.stack([s for half in inside.T for s in (half, ~half)], axis=1)
    weak = np.isin(np.arange(300), [10, 32, 200])
    phi = draw.normal(size=inside.shape) + 9 * (inside & weak[:, None])
    found = exposed_counts(signals(phi, inside), np.arange(300) < 150, OWNERS)
    assert found is not None
    assert (found.records, found.held) == (2, (1, 1))
    assert found.exposure > 0.99
    assert found.everybody == pytest.approx(0.5, abs=0.05)


def test_the_highest_of_many_figures_by_chance_is_not_believed():
    draw = np.random.default_rng(1)
    inside = np.tile([[True, False]], (300, 2))
    noise = signals(draw.normal(size=inside.shape), inside)
    found = exposed_counts(noise, np.arange(300) < 150, OWNERS)
    assert found is not None
    assert abs(found.exposure - 0.5) < 0.4  # two records, one pair of references
    assert record_exposures(noise).max() > 0.95
