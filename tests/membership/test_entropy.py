import numpy as np
import pytest

from covey import Signals
from covey.membership.attacks import Attack, EntropyAttack, PlainEntropyAttack

LABELS = np.array([0, 0])
LOG_PROBS = np.log([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])


def scores(attack: Attack, log_probs: np.ndarray) -> np.ndarray:
    return attack(Signals(LABELS, log_probs, np.zeros((2, 0, 3)), np.zeros((2, 0), dtype=bool)))


def test_entropy_by_hand():
    # -H = .7 log .7 + .2 log .2 + .1 log .1, whatever the label
    expected = 0.7 * np.log(0.7) + 0.2 * np.log(0.2) + 0.1 * np.log(0.1)
    assert scores(PlainEntropyAttack(), LOG_PROBS) == pytest.approx([expected] * 2)


def test_modified_entropy_by_hand():
    # right: (1 - .7) log .7 + .2 log .8 + .1 log .9
    # wrong: (1 - .1) log .1 + .2 log .8 + .7 log .3
    right = 0.3 * np.log(0.7) + 0.2 * np.log(0.8) + 0.1 * np.log(0.9)
    wrong = 0.9 * np.log(0.1) + 0.2 * np.log(0.8) + 0.7 * np.log(0.3)
    found = scores(EntropyAttack(), LOG_PROBS)
    assert found == pytest.approx([right, wrong])


def test_certainty_of_the_right_class_is_the_most_member_like_of_all():
    sure = np.array([[0.0, -800.0, -800.0], [-800.0, 0.0, -800.0]])
    right, wrong = scores(EntropyAttack(), sure)
    assert right == 0
    assert wrong < -800
