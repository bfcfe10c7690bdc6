import numpy as np
import pytest

from covey.membership.attacks import shokri_features


def test_features_by_hand():
    log_probs = np.log([[0.1, 0.5, 0.3, 0.1]])
    (found,) = shokri_features(log_probs, np.array([2]))
    expected = [*np.log([0.5, 0.3, 0.1, 0.3, 0.3 / 0.7]), 0, 0, 0, 1, 0]
    assert found == pytest.approx(expected)
    (right,) = shokri_features(log_probs, np.array([1]))
    assert right[5] == 1
