import numpy as np
import pytest
from scipy.stats import norm

from covey import ConfigError
from covey.membership.attacks import fedmia


def test_client_by_client():
    draw = np.random.default_rng(0)
    signals, suspects = draw.normal(size=(3, 5, 7)), draw.integers(5, size=7)
    found = fedmia(signals, suspects)
    for x, k in enumerate(suspects):
        tails: list[float] = []
        for t in range(3):
            others = [signals[t, i, x] for i in range(5) if i != k]
            z = (signals[t, k, x] - np.mean(others)) / np.std(others)
            tails.append(float(norm.cdf(z)))
        assert found[x] == pytest.approx(np.mean(tails))


def test_by_hand():
    # others 0 and 2: mu 1, sigma 1; the suspect's 2 is one sigma above: Phi(1)
    signals = np.array([[[0.0], [2.0], [2.0]]])
    assert fedmia(signals, np.array([2])) == pytest.approx([norm.cdf(1.0)])


def test_too_few_others_are_refused():
    with pytest.raises(ConfigError, match="found 2 clients"):
        fedmia(np.zeros((1, 2, 3)), np.array([0, 1, 0]))
