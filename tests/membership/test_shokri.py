import numpy as np
import pytest
from scipy.special import log_softmax

from covey import Signals
from covey.membership.attacks import Shokri, auc, shokri_features


def test_features_by_hand():
    log_probs = np.log([[0.1, 0.5, 0.3, 0.1]])
    (found,) = shokri_features(log_probs, np.array([2]))
    expected = [*np.log([0.5, 0.3, 0.1, 0.3, 0.3 / 0.7]), 0, 0, 0, 1, 0]
    assert found == pytest.approx(expected)
    (right,) = shokri_features(log_probs, np.array([1]))
    assert right[5] == 1


def test_it_finds_on_the_target_what_it_learnt_on_the_references():
    # 300 records; a model's logit of the label is 2 higher where it was trained
    draw = np.random.default_rng(0)
    labels = draw.integers(5, size=300)
    target, one, two = (draw.permutation(300) < 150 for _ in range(3))
    inside = np.stack([target, one, ~one, two, ~two], axis=1)
    outputs = draw.normal(size=(300, 5, 5))
    outputs += 2 * inside[:, :, None] * np.eye(5)[labels][:, None]
    log_probs = log_softmax(outputs, axis=2)
    scores = Shokri()(Signals(labels, log_probs[:, 0], log_probs[:, 1:], inside[:, 1:]))
    assert auc(scores[target], scores[~target]) > 0.75
